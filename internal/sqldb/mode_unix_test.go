//go:build unix

package sqldb_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/sqldb"
)

const umaskEnv = "LEAT_TEST_UMASK"

// Whatever the umask, the database and all beside it is for its owner to read
// and write, and for nobody else. The umask is the process's, so it has its own.
func TestModeWhateverTheUmask(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(umaskEnv); dir != "" {
		for name, mask := range map[string]int{"none": 0, "all": 0o777} {
			old := syscall.Umask(mask)
			db := openAt(t, filepath.Join(dir, name+".db"))
			runIn(t, db, "INSERT INTO leat_topics (name, uid, partitions, retention) VALUES ('s', 'k', 1, 0)")
			syscall.Umask(old)
			files, err := filepath.Glob(filepath.Join(dir, name+".db*"))
			require.NoError(t, err)
			require.Len(t, files, 4, "database, log, index of the log, lock")
			for _, file := range files {
				info, err := os.Stat(file)
				require.NoError(t, err)
				require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), file)
			}
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestModeWhateverTheUmask$", "-test.v")
	cmd.Env = append(os.Environ(), umaskEnv+"="+t.TempDir())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS")
	require.NotContains(t, string(out), "SKIP")
}

// A database that somebody made readable for others stays so, and its log too.
func TestModeOfAnExistingFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Chmod(path, 0o640))
	db, err := sqldb.Open(t.Context(), sqldb.Options{Path: path})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o640), info.Mode().Perm(), suffix)
	}
}
