package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"watermill": main})
}

func TestExample(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{Dir: "testdata", Setup: func(e *testscript.Env) error {
		for _, name := range []string{"worker.yaml", "expected.txt"} {
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if err := os.WriteFile(e.Cd+"/"+name, content, 0o600); err != nil {
				return err
			}
		}
		return nil
	}})
}
