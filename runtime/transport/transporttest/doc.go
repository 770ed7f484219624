// Package transporttest is the contract of package transport as a suite: a
// transport that passes it keeps what the engine is promised by a broker.
//
// A transport's own tests run it so:
//
//	func TestConformance(t *testing.T) {
//		report := transporttest.Run(t, transporttest.Options{
//			Open: func(tb transporttest.TB) transporttest.Broker {
//				dir := tb.TempDir() // a broker of its own for every case
//				return transporttest.Broker{
//					Transport: func(tb transporttest.TB) transport.Transport { return mine.New(dir) },
//					Kill: func(_ transporttest.TB, c transport.Consumer, _ transport.ConsumerConfig) { mine.Kill(c) },
//				}
//			},
//			Takeover: 6 * time.Second,
//			Lacks:    map[string]string{"*": "a directory does not run, and knows no transactions"},
//		})
//		for name, why := range report.Skipped() { // so that nothing is skipped unnoticed
//			require.Regexp(t, "^no [A-Z]", why, name)
//		}
//	}
//
// Every case has a name: its id in the project's list of guarantees, or SPI
// where that has none, and a word. A missing capability of
// [transport.Capabilities] skips the cases that are about it, and so does a
// hook that [Broker] does not have. A promise never skips. What was skipped,
// and why, is logged as a table at the end (seen with -v) and returned.
//
// [Check] runs the same cases without a test to fail, and reports. Where the
// broker is within the process, it can do so in a bubble of testing/synctest, in
// no time at all.
package transporttest
