package config

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMarkdown(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll(`# Title

'''yaml
broker: sqlite://w
consumers:
  c: {topic: t, handler: log, prefech: 1}
'''

'''yaml fragment
broker: nothing
'''

'''sh
broker: no yaml
'''

'''yaml
services: {a: b}
'''

1. In a list:

   ~~~yml
   broker: sqlite://w
   consumers:
     c: {topic: t, handlr: log}
   '''
   ~~~

''''markdown
'''yaml
consumers: shown, not meant
'''
''''

'''yaml
consumers: never closed
`, "'", "`")
	found := Markdown("docs/page.md", []byte(text))
	require.Len(t, found, 3)
	require.Equal(t, "docs", found[0].Dir)

	_, err := Load(Options{Data: found[:1]})
	require.EqualError(t, err, `docs/page.md:6:31: unknown key "prefech" under consumers.c; did you mean "prefetch"?`+
		"\n    6 |   c: {topic: t, handler: log, prefech: 1}\n      |                               ^")
	_, err = Load(Options{Data: found[1:2]})
	problem := problemsOf(t, err)[0]
	require.Equal(t, 27, problem.Line)
	require.Contains(t, problem.Message, "can't begin with this character")
	_, err = Load(Options{Data: found[2:]})
	require.ErrorContains(t, err, "docs/page.md:37:12: consumers: ")
}

// TestMarkdownReferences checks that a block's files are beside its document.
func TestMarkdownReferences(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/url", []byte("sqlite://w\n"), 0o600))
	text := "```yaml\nbroker: ${file:url}\nconsumers: {c: {topic: t, handler: log}}\n```\n"
	c, err := Load(Options{Data: Markdown(dir+"/page.md", []byte(text))})
	require.NoError(t, err)
	require.Equal(t, "sqlite", c.Broker.Kind)
	require.Equal(t, dir, c.Broker.Dir)
}
