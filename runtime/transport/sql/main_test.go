package sql_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(processEnv) != "" {
		os.Exit(m.Run()) // a process of a test: it waits for the end of its standard input as well
	}
	goleak.VerifyTestMain(m)
}
