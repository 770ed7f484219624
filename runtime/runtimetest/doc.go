// Package runtimetest tests handlers as a worker runs them: the worker's own
// file, the real engine, the real chain, and in place of every broker one in
// memory. There is nothing to set up, and time is virtual: an hour of backoff
// takes no time, and a test that asserts waits gives the same answer each time.
//
//	func TestCharge(t *testing.T) {
//		t.Parallel()
//		bank := &fakeBank{}
//		runtimetest.Run(t, runtimetest.File("worker.yaml", parts(bank)...), func(k *runtimetest.Kit) {
//			bank.busy = true
//			order := k.Publish("orders.placed", Order{ID: "o-1", Total: 500})
//			k.ExpectRetried(order)
//
//			bank.busy = false
//			k.Advance(time.Minute)
//			k.ExpectHandled(order)
//			k.ExpectEmitted("payments.charged", Charged{Order: "o-1", Amount: 500})
//		})
//	}
//
// A test reads as a script. Publish returns at once. Each Expect lets time go
// on until it has its answer, and fails with a timeline of all attempts if
// that is another one, or if a day of virtual time has passed.
//
// # What is real and what is not
//
// Of the file everything holds but this: each broker and the store of dedup
// keys are in memory, topology is declare, and there is no HTTP and no
// telemetry. So a file with kafka://… or ${BROKER_URL:?} runs as it stands;
// other references are looked up as by `worker run`, or by
// [config.Options.LookupEnv] with [Config]. What a real broker cannot do is
// not imitated: that is what `worker lint` is for.
//
// # Virtual time
//
// The test runs in a bubble of testing/synctest, whose clock stands while any
// goroutine in it works and jumps when all of them wait. Three things follow.
// A handler must not wait for something outside the bubble that never comes:
// a channel made before [Run] was called, or a network. Parts with timers of
// their own, such as a dedup link, belong to one bubble: make them anew for each
// Run. And a handler that never returns fails the test, as it would hold up a
// real worker's stop; where nothing can end it, that is a panic of synctest.
package runtimetest
