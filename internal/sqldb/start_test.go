package sqldb_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/sqldb"
)

const startEnv = "LEAT_TEST_START"

// Several processes on one fresh file at the same moment all start cleanly.
func TestSimultaneousStarts(t *testing.T) {
	t.Parallel()
	if path := os.Getenv(startEnv); path != "" {
		for i := range 25 {
			db, err := sqldb.Open(t.Context(), sqldb.Options{Path: filepath.Join(path, strconv.Itoa(i)+".db")})
			require.NoError(t, err)
			insert := "INSERT INTO leat_topics (name, uid, partitions, retention) VALUES (?, '', 1, 1)"
			runIn(t, db, insert, strconv.Itoa(os.Getpid()))
			require.NoError(t, db.Close())
		}
		return
	}
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestSimultaneousStarts$")
			cmd.Env = append(os.Environ(), startEnv+"="+dir)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	for i := range 25 {
		db := openAt(t, filepath.Join(dir, strconv.Itoa(i)+".db"))
		var n int
		require.NoError(t, db.Reader.QueryRowContext(t.Context(), "SELECT count(*) FROM leat_topics").Scan(&n))
		require.Equal(t, 3, n)
	}
}
