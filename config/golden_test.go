package config

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// testEnv is what references see in the golden files. CANARY must never be printed.
func testEnv(name string) (string, bool) {
	value, ok := map[string]string{
		"EMPTY": "", "PORT": "8080", "WORD": "canary-word", "CANARY": "canary-secret", "MULTI": "x\nadmin: {listen: 0.0.0.0}",
		"BROKER_URL": "kafka://user:canary@h1:9092",
	}[name]
	return value, ok
}

// testKafka stands for the options of a transport.
type testKafka struct {
	Brokers  []string `yaml:"brokers" required:"true"`
	Username string   `yaml:"username"`
	Password Secret   `yaml:"password"`
	Keytab   Secret   `yaml:"keytab"`
	Linger   Duration `yaml:"linger" max:"1s"`
	Acks     string   `yaml:"acks" enum:"all,leader,none"`
	TLS      *testTLS `yaml:"tls"`
}

type testTLS struct {
	CAFile  string `yaml:"ca_file"`
	Cert    string `yaml:"cert_file"`
	Key     string `yaml:"key_file"`
	Version Size   `yaml:"version"`
}

func (t *testTLS) Validate() error {
	if (t.Cert == "") != (t.Key == "") {
		return OptionErrorf("cert_file", "needs key_file beside it")
	}
	return nil
}

func testFacts(c *Config) Facts {
	byKind := map[string]BrokerFacts{
		"kafka":  {KeyOrderScope: ScopeGroup, Networked: true},
		"amqp":   {KeyOrderScope: ScopeWorker, Networked: true, DerivesNames: true, NeedsReader: true, AckTimeout: Duration(30 * time.Minute)},
		"sqlite": {KeyOrderScope: ScopeGroup, SQL: true},
		"memory": {KeyOrderScope: ScopeWorker},
	}
	facts := Facts{
		Known: Known{
			Transports: []string{"amqp", "kafka", "memory", "sqlite"}, Stores: []string{"memory", "sqlite"},
			Handlers: []string{"charge", "discard", "forward", "log"}, Middleware: []string{"tenant", "unzip"},
		},
		Brokers:         map[string]BrokerFacts{},
		StorePerProcess: c.Store.Kind == "memory",
	}
	for name, broker := range c.Brokers {
		facts.Brokers[name] = byKind[broker.Kind]
	}
	if known, ok := byKind[c.Broker.Kind]; ok {
		facts.Brokers[""] = known
	}
	return facts
}

// judge runs a file through everything a worker does with it and returns all that is said.
func judge(o Options) string {
	c, err := Load(o)
	if err != nil {
		return err.Error()
	}
	var optionErrs error
	for _, broker := range append([]Component{c.Broker}, brokersOf(c)...) {
		if broker.Kind == "kafka" && broker.URL.IsZero() {
			optionErrs = Join(optionErrs, broker.Decode(&testKafka{}))
		}
	}
	errs, warnings := c.Lint(testFacts(c))
	var said []string
	if all := Join(optionErrs, problems(errs)); all != nil {
		said = append(said, all.Error())
	}
	for _, w := range warnings {
		said = append(said, "warning: "+w.String())
	}
	return strings.Join(said, "\n")
}

func brokersOf(c *Config) (out []Component) {
	for _, name := range sortedKeys(c.Brokers) {
		out = append(out, c.Brokers[name])
	}
	return out
}

func problems(p []Problem) error {
	if len(p) == 0 {
		return nil
	}
	return &Error{Problems: p}
}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bad/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			got := judge(Options{Files: []string{file}, LookupEnv: testEnv}) + "\n"
			require.NotContains(t, got, "canary")
			golden := strings.TrimSuffix(file, ".yaml") + ".err"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
			require.NotEqual(t, "\n", got, "nothing is wrong with this file")
		})
	}
}

func TestGoodFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/good/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			require.Empty(t, judge(Options{Files: []string{file}, LookupEnv: testEnv}))
		})
	}
}

// load reads a text, which must be good.
func load(t *testing.T, text string, change ...func(*Options)) *Config {
	t.Helper()
	c, err := try(text, change...)
	require.NoError(t, err)
	return c
}

func try(text string, change ...func(*Options)) (*Config, error) {
	o := Options{Data: []Data{{Name: "test.yaml", Text: []byte(text)}}, LookupEnv: testEnv}
	for _, f := range change {
		f(&o)
	}
	return Load(o)
}

func problemsOf(t *testing.T, err error) []Problem {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	return e.Problems
}
