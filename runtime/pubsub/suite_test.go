package pubsub_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"reflect"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"
)

// upstream are the tests of Watermill's suite, which its own runner gives no
// account of: a test that skips itself reads there as one that passed.
var upstream = map[string]func(*testing.T, tests.TestContext, tests.PubSubConstructor){
	"TestPublishSubscribe":                  tests.TestPublishSubscribe,
	"TestConcurrentSubscribe":               tests.TestConcurrentSubscribe,
	"TestConcurrentSubscribeMultipleTopics": tests.TestConcurrentSubscribeMultipleTopics,
	"TestResendOnError":                     tests.TestResendOnError,
	"TestNoAck":                             tests.TestNoAck,
	"TestContinueAfterSubscribeClose":       tests.TestContinueAfterSubscribeClose,
	"TestConcurrentClose":                   tests.TestConcurrentClose,
	"TestContinueAfterErrors":               tests.TestContinueAfterErrors,
	"TestPublishSubscribeInOrder":           tests.TestPublishSubscribeInOrder,
	"TestPublisherClose":                    tests.TestPublisherClose,
	"TestTopic":                             tests.TestTopic,
	"TestMessageCtx":                        tests.TestMessageCtx,
	"TestSubscribeCtx":                      tests.TestSubscribeCtx,
	"TestNewSubscriberReceivesOldMessages":  tests.TestNewSubscriberReceivesOldMessages,
	"TestReconnect":                         tests.TestReconnect,
}

// face is one transport, as Watermill sees it.
type face struct {
	features tests.Features
	// lacks says of each test that these features leave out why it is so.
	lacks map[string]string
	// open makes a publisher and a subscriber of a group, as another process has them.
	open tests.ConsumerGroupPubSubConstructor
}

// exercise runs Watermill's suite and compares what was run with what the
// features say can be.
func (f face) exercise(t *testing.T) {
	t.Helper()
	f.features.ForceShort = f.features.ForceShort || os.Getenv("LEAT_SOAK") == ""
	var mu sync.Mutex
	skipped, ran := map[string]bool{}, map[string]bool{}
	run := func(t *testing.T, name string, test func(*testing.T)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			if name != "TestReconnect" { // it restarts the broker
				t.Parallel()
			}
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				ran[name] = true
				if t.Skipped() {
					skipped[name] = true
				}
			}()
			test(t)
		})
	}
	t.Run("suite", func(t *testing.T) {
		for _, name := range slices.Sorted(maps.Keys(upstream)) {
			run(t, name, func(t *testing.T) {
				t.Helper()
				f.only(t, name)
			})
		}
		run(t, "TestConsumerGroups", func(t *testing.T) {
			t.Helper()
			tests.TestConsumerGroups(t, tests.TestContext{TestID: tests.NewTestID(), Features: f.features}, f.open)
		})
	})
	t.Cleanup(func() { // after the parallel ones
		mu.Lock()
		defer mu.Unlock()
		for name := range skipped {
			if f.lacks[name] == "" {
				t.Errorf("%s skipped itself, which is not in the table", name)
			}
			t.Logf("%s skipped: %s", name, f.lacks[name])
		}
		for name := range f.lacks {
			if ran[name] && !skipped[name] {
				t.Errorf("%s ran, which the table says it cannot", name)
			}
		}
	})
}

// only runs one test of the suite.
func (f face) only(t *testing.T, name string) {
	t.Helper()
	tc := tests.TestContext{TestID: tests.NewTestID(), Features: f.features}
	group := "group-" + string(tc.TestID)
	upstream[name](t, tc, func(t *testing.T) (message.Publisher, message.Subscriber) {
		t.Helper()
		if name == "TestNewSubscriberReceivesOldMessages" { // of groups, that is
			group = "group-" + string(tests.NewTestID())
		}
		return f.open(t, group)
	})
}

// TestSuiteIsWhole holds the list above against the source of Watermill's suite.
func TestSuiteIsWhole(t *testing.T) {
	t.Parallel()
	parsed, err := parser.ParseFile(token.NewFileSet(), fileOf(tests.TestPubSub), nil, 0)
	require.NoError(t, err)
	var there []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		if fn, ok := n.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Test") {
			there = append(there, fn.Name.Name)
		}
		return true
	})
	known := slices.Collect(maps.Keys(upstream))
	require.ElementsMatch(t, append(known, "TestPubSub", "TestPubSubStressTest", "TestConsumerGroups"), there)
}

// fileOf is where a function's source is.
func fileOf(fn any) string {
	f := goruntime.FuncForPC(reflect.ValueOf(fn).Pointer())
	file, _ := f.FileLine(f.Entry())
	return file
}
