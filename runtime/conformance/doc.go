// Package conformance is what Leat promises, as a suite over a broker: the
// engine with the standard chain on a transport, and whole worker processes
// that are stopped and killed. Package transporttest looks at the transport
// alone, and comes first.
//
// A transport's own tests run it so:
//
//	func TestConformance(t *testing.T) {
//		report := conformance.Run(t, conformance.Options{
//			Open: func(tb conformance.TB) conformance.Broker {
//				dir := tb.TempDir() // a broker of its own for every case
//				return conformance.Broker{
//					Transport: func(tb conformance.TB) transport.Transport { return mine.New(dir) },
//					Config:    fmt.Sprintf("{mine: {dir: %q}}", dir),
//				}
//			},
//			Worker:   "./internal/testworker", // five lines, see package probe
//			Takeover: 6 * time.Second,
//		})
//		require.Empty(t, report.Skipped())
//	}
//
// Every case has a name: its id in the project's list of guarantees, or SPI or
// SAME where that has none, and a word. Only a missing capability of
// [transport.Capabilities] skips a case, a promise never does: cases with
// processes are skipped for a broker that is not Durable, and for one that
// says in [Options] why it cannot be tried so. What was skipped is logged as a
// table at the end (seen with -v) and returned.
//
// The scenarios run in real time and wait for events. Where a deadline is, it
// bounds how long a failure takes; times are asserted only where something
// must not come early. [Check] runs the same cases without a test to fail, and
// for a broker within the process also in a bubble of testing/synctest.
//
// testing.Short makes the suite quick, and LEAT_SOAK=1 in the environment long:
// ten thousand messages, a thousand kills.
package conformance
