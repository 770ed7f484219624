# shellcheck shell=bash
# Apache Kafka, KRaft, broker and controller in one process: kafka is one node, kafka3-1
# to kafka3-3 are a cluster.

CLUSTER_ID=bGVhdC1icm9rZXJzLWthZg # any 16 bytes, in base64

kafka_folder() { echo "$KAFKA"; }
kafka_user() { echo root; }
kafka_uses() { echo client controller; }

kafka_url() {
	local node addresses=()
	for node in $(members "$1"); do addresses+=("127.0.0.1:$(port "$node" client)"); done
	(
		IFS=,
		echo "kafka://${addresses[*]}"
	)
}

kafka_init() {
	kafka_properties "$1" >"$RUN/$1/server.properties" &&
		mkdir "$RUN/$1/data/tmp" &&
		once "$1" java -cp "$KAFKA/libs/*" -Xmx256m -XX:-UsePerfData -XX:TieredStopAtLevel=1 \
			-Dlog4j2.configurationFile="$LIB/kafka/log4j2.properties" \
			kafka.tools.StorageTool format -t "$CLUSTER_ID" -c "$RUN/$1/server.properties"
}

# Process ids are 1 in every namespace, so the JVM must keep nothing in /tmp by its id.
kafka_command() {
	local memory=(-Xmx1g)
	[[ $1 == kafka ]] || memory=(-Xmx384m -XX:+UseSerialGC)
	need_java
	printf '%s\n' java -cp "$KAFKA/libs/*" "${memory[@]}" -XX:-UsePerfData \
		-Djava.net.preferIPv4Stack=true -Djava.io.tmpdir="$RUN/$1/data/tmp" \
		-Dlog4j2.configurationFile="$LIB/kafka/log4j2.properties" \
		kafka.Kafka "$RUN/$1/server.properties"
}

# The last line of its start, after the broker is unfenced and its listener opened.
kafka_ready() {
	grep -q 'Kafka Server started' < <(tail -c "+$(($(<"$RUN/$1/log.start") + 1))" "$RUN/$1/log")
}

kafka_properties() {
	local node voters=() id=${1#kafka3-} copies=3 in_sync=2
	[[ $1 != kafka ]] || id=1 copies=1 in_sync=1
	for node in $(members "${1%-[123]}"); do
		voters+=("${node#kafka3-}@127.0.0.1:$(port "$node" controller)")
	done
	cat <<PROPERTIES
process.roles=broker,controller
node.id=$id
controller.quorum.voters=$(IFS=, && echo "${voters[*]/#kafka@/1@}")
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$(port "$1" client),CONTROLLER://127.0.0.1:$(port "$1" controller)
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$RUN/$1/data/logs
default.replication.factor=$copies
min.insync.replicas=$in_sync
offsets.topic.replication.factor=$copies
transaction.state.log.replication.factor=$copies
transaction.state.log.min.isr=$in_sync
share.coordinator.state.topic.replication.factor=$copies
share.coordinator.state.topic.min.isr=$in_sync
# Fewer than 50 each: a node starts, and dies, faster.
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
share.coordinator.state.topic.num.partitions=4
# A killed node may not come back before its session ends.
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
# Groups start at once, and tests may choose short sessions.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=1000
group.consumer.min.heartbeat.interval.ms=200
PROPERTIES
}
