package leat_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pages are the documents whose links and names are checked.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"docs/*.md", "examples/*/README.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		all = append(all, found...)
	}
	require.NotEmpty(t, all)
	return all
}

func readPage(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// walkSources calls fn with each Go and SQL file of the module.
func walkSources(t *testing.T, fn func(path, source string)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := d.Name(); {
		case d.IsDir() && name != "." && strings.HasPrefix(name, "."):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".go" && filepath.Ext(name) != ".sql":
			return nil
		}
		fn(path, readPage(t, path))
		return nil
	}))
}

var (
	testFunc  = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	citedTest = regexp.MustCompile("`(Test[A-Z]\\w*)(?:/([^`]+))?`")
)

// TestDocsNameTestsThatAreThere: each test that a page names is in the tree. A
// case within it is a text in one of its package's files, or of a suite that
// it may run.
func TestDocsNameTestsThatAreThere(t *testing.T) {
	t.Parallel()
	suites := []string{"runtime/transport/transporttest", "runtime/conformance"}
	folders := map[string][]string{} // of the files that have a test, by its name
	sources := map[string]string{}   // by folder
	walkSources(t, func(path, source string) {
		dir := filepath.ToSlash(filepath.Dir(path))
		sources[dir] += source
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range testFunc.FindAllStringSubmatch(source, -1) {
				folders[m[1]] = append(folders[m[1]], dir)
			}
		}
	})
	cited := 0
	for _, page := range pages(t) {
		for _, m := range citedTest.FindAllStringSubmatch(readPage(t, page), -1) {
			cited++
			require.NotEmpty(t, folders[m[1]], "%s: there is no %s", page, m[1])
			if m[2] == "" || m[2] == "…" {
				continue
			}
			found := false
			for _, dir := range append(suites, folders[m[1]]...) {
				found = found || strings.Contains(sources[dir], `"`+m[2]+`"`)
			}
			require.True(t, found, "%s: %s has no case %q", page, m[1], m[2])
		}
	}
	require.Greater(t, cited, 50)
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	code    = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`")
)

// TestDocsLinksResolve: files, and headings in them.
func TestDocsLinksResolve(t *testing.T) {
	t.Parallel()
	for _, page := range append(pages(t), "README.md", "CONTRIBUTING.md", "DESIGN.md", "CHANGELOG.md") {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(readPage(t, page), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			require.FileExists(t, target, "link of %s", page)
			if anchor != "" {
				require.Contains(t, anchorsOf(readPage(t, target)), anchor, "link of %s to %s", page, target)
			}
		}
	}
}

// TestDocsIndex: the index has a link to every page.
func TestDocsIndex(t *testing.T) {
	t.Parallel()
	index := map[string]bool{filepath.Join("docs", "README.md"): true}
	for _, m := range link.FindAllStringSubmatch(readPage(t, "docs/README.md"), -1) {
		path, _, _ := strings.Cut(m[1], "#")
		index[filepath.Join("docs", path)] = true
	}
	for _, page := range pages(t) {
		if filepath.Dir(page) == "docs" {
			require.True(t, index[page], "docs/README.md has no link to %s", page)
		}
	}
}

// anchorsOf gives the anchors of headings as forges make them.
func anchorsOf(markdown string) (anchors []string) {
	for _, m := range heading.FindAllStringSubmatch(markdown, -1) {
		slug := notSlug.ReplaceAllString(strings.ToLower(m[1]), "")
		anchors = append(anchors, strings.ReplaceAll(slug, " ", "-"))
	}
	return anchors
}

var leatName = regexp.MustCompile(`\bleat_[a-z_]*[a-z]`)

// TestDocsNamesAreReal: each leat_… of a page is a metric, a header or a table.
func TestDocsNamesAreReal(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	walkSources(t, func(path, source string) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, name := range leatName.FindAllString(source, -1) {
			known[name] = true
		}
	})
	for _, name := range leatName.FindAllString(readPage(t, "docs/metrics.md"), -1) {
		known[name] = true // the page is made from the metrics themselves
	}
	for _, page := range pages(t) {
		for _, name := range leatName.FindAllString(readPage(t, page), -1) {
			require.True(t, known[name], "%s: there is no %s", page, name)
		}
	}
}

// goFiles gives the Go of a page: blocks continue a file until one begins with
// a package clause.
func goFiles(markdown string) (files []string) {
	for _, block := range blocksOf(markdown)["go"] {
		if strings.HasPrefix(block, "package ") {
			files = append(files, block)
		} else if n := len(files); n > 0 {
			files[n-1] += "\n" + block
		}
	}
	return files
}

var fragment = regexp.MustCompile("(?ms)^```yaml fragment\n(.*?)^```$")

// TestWritingHandlers vets the program of the page and runs its test, with its file.
func TestWritingHandlers(t *testing.T) {
	t.Parallel()
	text := readPage(t, "docs/writing-handlers.md")
	files := goFiles(text)
	require.Len(t, files, 2)
	dir := t.TempDir()
	args := []string{"test"}
	for i, name := range []string{"main.go", "main_test.go"} {
		args = append(args, filepath.Join(dir, name))
		require.NoError(t, os.WriteFile(args[i+1], []byte(files[i]), 0o600))
	}
	file := fragment.FindStringSubmatch(text)
	require.NotNil(t, file)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "worker.yaml"), []byte(file[1]), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestOperating runs the commands of the page, in their order and in one
// folder with its files.
func TestOperating(t *testing.T) {
	t.Parallel()
	blocks := blocksOf(readPage(t, "docs/operating.md"))
	s := newSite(t)
	s.buildWorker()
	require.Len(t, blocks["yaml"], 2)
	s.write("worker.yaml", strings.ReplaceAll(blocks["yaml"][0], "127.0.0.1:9610", "127.0.0.1:0"))
	s.write("replay.yaml", blocks["yaml"][1])
	said := ""
	for _, block := range blocks["sh"] {
		for line := range strings.Lines(block) {
			said += s.run(strings.TrimSpace(line))
		}
	}
	require.Contains(t, said, `"handled":1`)
	require.Contains(t, said, "shop.db: ok")
}
