package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func over(text string) func(*Options) {
	return func(o *Options) { o.Data = append(o.Data, Data{Name: "over.yaml", Text: []byte(text)}) }
}

func set(values ...string) func(*Options) { return func(o *Options) { o.Set = values } }

func TestOverlayFiles(t *testing.T) {
	t.Parallel()
	c := load(t, five+"    use: [a, b]\n    retry: {attempts: 3, jitter: 0}\n    timeout: ${UNSET_BUT_REPLACED}\n  audit: {topic: x, handler: log}\n",
		over("consumers: {charge: {use: [c], retry: {attempts: 7}, timeout: 2s}, audit: null, third: {topic: y, handler: log}}\ndrain_timeout: 5s\n"))
	require.Len(t, c.Consumers, 2)
	charge := c.Consumers[0]
	require.Equal(t, "charge", charge.Name)
	require.Equal(t, "third", c.Consumers[1].Name)
	require.Len(t, charge.Use, 1)
	require.Equal(t, "c", charge.Use[0].Kind)
	require.Equal(t, 7, charge.Retry.Attempts)
	require.Zero(t, charge.Retry.Jitter)
	require.Equal(t, "5s", c.DrainTimeout.String())
}

func TestOverlayReplacesComponentOfAnotherKind(t *testing.T) {
	t.Parallel()
	base := "broker: {kafka: {brokers: [a]}}\nbrokers: {b: {kafka: {x: 1}}}\nconsumers: {c: {topic: t, handler: {forward: {topic: x}}}}\n"
	c := load(t, base, over("broker: {amqp: {url: x}}\nbrokers: {b: {amqp: {}}}\nconsumers: {c: {handler: {log: {}}}}\n"))
	require.Equal(t, "amqp", c.Broker.Kind)
	require.Equal(t, "amqp", c.Brokers["b"].Kind)
	require.Equal(t, "log", c.Consumers[0].Handler.Kind)

	c = load(t, base, over("broker: {kafka: {linger: 5ms}}\n"))
	options := testKafka{}
	require.NoError(t, c.Broker.Decode(&options))
	require.Equal(t, []string{"a"}, options.Brokers)
	require.Equal(t, "5ms", options.Linger.String())
}

func TestSet(t *testing.T) {
	t.Parallel()
	c := load(t, five+"    group: g\n    use: [a]\n  a.b: {topic: x, handler: log}\n",
		set("consumers.charge.concurrency=4", "consumers.charge.use=[x, {y: {z: 1}}]", "consumers.charge.group=null",
			`consumers."a.b".timeout=${T:-9s}`, "broker=amqp://u:p=q@h/?a=b", "http.listen=", "name=v1"))
	require.Equal(t, 4, c.Consumers[0].Concurrency)
	require.Len(t, c.Consumers[0].Use, 2)
	require.Equal(t, "v1.charge", c.Consumers[0].Group)
	require.Equal(t, "9s", c.Consumers[1].Timeout.String())
	require.Equal(t, "amqp://u:p=q@h/?a=b", c.Broker.URL.Reveal())
}

func TestBadSet(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"consumers.charge.prefech=3":           `--set consumers.charge.prefech: unknown key "prefech" under consumers.charge; did you mean "prefetch"?`,
		"consumers.charge.concurrency=x":       `--set consumers.charge.concurrency: consumers.charge.concurrency: "x" is not a whole number`,
		"consumers.charge.retry={attempt: 3}":  `--set consumers.charge.retry: unknown key "attempt" under consumers.charge.retry; did you mean "attempts"?`,
		"consumers.charge.timeout=${UNSET}":    "--set consumers.charge.timeout: environment variable UNSET is not set",
		"name":                                 "--set name: no value; write --set path.to.key=value",
		"=x":                                   "not a path; write --set path.to.key=value",
		"a..b=x":                               "not a path",
		`a."b=x`:                               "a quote in the path that is never closed",
		`a."b"c=x`:                             "not a path",
		"name=[a":                              "the value is not one line of YAML",
		"name=a: b":                            "the value is not one line of YAML",
		"name=x\nbroker: memory":               "the value is not one line of YAML",
		"broker.kafka.password=canary: canary": "the value is not one line of YAML",
	} {
		_, err := try(five, set(value))
		require.ErrorContains(t, err, want, value)
		require.NotContains(t, err.Error(), "canary")
	}
}

func TestProblemNamesTheFileOfTheOverlay(t *testing.T) {
	t.Parallel()
	_, err := try(five, over("consumers:\n  charge:\n    timeout: 5\n"))
	p := problemsOf(t, err)
	require.Len(t, p, 1)
	require.Equal(t, "over.yaml", p[0].File)
	require.Equal(t, []int{3, 14}, []int{p[0].Line, p[0].Col})
	require.Equal(t, "consumers.charge.timeout", p[0].Path)
	require.Equal(t, "    timeout: 5", p[0].Source)
}
