import com.sun.management.OperatingSystemMXBean;
import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consumes by key. Its argument is the brokers; each line of its input is a run, "topic group
 * concurrency begin end milliseconds", and is answered by what the messages after the begin-th, up
 * to the end-th, took: nanoseconds by the clock, and of CPU time of the whole process.
 */
public final class Bench {
  private static final OperatingSystemMXBean SYSTEM =
      (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

  public static void main(String[] args) throws Exception {
    Scanner in = new Scanner(System.in);
    while (in.hasNext()) {
      run(args[0], in.next(), in.next(), in.nextInt(), in.nextLong(), in.nextLong(), in.nextLong());
    }
    System.exit(0); // some of the library's threads stay
  }

  private static void run(
      String brokers, String topic, String group, int concurrency, long begin, long end, long work)
      throws Exception {
    var consumer =
        new KafkaConsumer<byte[], byte[]>(
            Map.of(
                "bootstrap.servers", brokers,
                "group.id", group,
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false"),
            new ByteArrayDeserializer(),
            new ByteArrayDeserializer());
    var processor =
        ParallelStreamProcessor.createEosStreamProcessor(
            ParallelConsumerOptions.<byte[], byte[]>builder()
                .consumer(consumer)
                .ordering(ProcessingOrder.KEY)
                .maxConcurrency(concurrency)
                .commitMode(CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS)
                .commitInterval(Duration.ofSeconds(1))
                .build());
    var handled = new AtomicLong();
    var done = new CountDownLatch(1);
    // Clock and CPU time, at the begin and at the end.
    var marks = new long[] {System.nanoTime(), SYSTEM.getProcessCpuTime(), 0, 0};
    processor.subscribe(List.of(topic));
    processor.poll(
        context -> {
          if (work > 0) {
            sleep(work);
          }
          long n = handled.incrementAndGet();
          if (n == begin) {
            marks[0] = System.nanoTime();
            marks[1] = SYSTEM.getProcessCpuTime();
          } else if (n == end) {
            marks[2] = System.nanoTime();
            marks[3] = SYSTEM.getProcessCpuTime();
            done.countDown();
          }
        });
    done.await();
    processor.closeDontDrainFirst();
    System.out.println((marks[2] - marks[0]) + " " + (marks[3] - marks[1]));
  }

  private static void sleep(long milliseconds) {
    try {
      Thread.sleep(milliseconds);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
