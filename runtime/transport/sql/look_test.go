package sql_test

import (
	stdsql "database/sql"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

// deadLetterSQL gives the statement of docs/databases.md for a kind of server.
func deadLetterSQL(t *testing.T, kind string) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/databases.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "## Looking at dead letters\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(section, -1)
	require.Len(t, blocks, 2)
	statement := blocks[map[string]int{"postgres": 0, "mysql": 1}[kind]][1]
	require.Contains(t, statement, deadTopic)
	return statement
}

const deadTopic = "orders.placed--shop.charge--dead"

// TestDeadLettersBySQL: one letter that is odd hides none of the others.
func TestDeadLettersBySQL(t *testing.T) {
	t.Parallel()
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			tr := w.open(t)
			require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: deadTopic, DeadLetter: true}))
			long := strings.Repeat("e", 600)
			p := produce(t, tr)
			letter := func(id, body string, headers message.Metadata) {
				m := message.NewMessage(id, []byte(body))
				m.Metadata = headers
				require.NoError(t, p.Publish(t.Context(), deadTopic, m))
			}
			reason := func(text, cause string, more ...string) message.Metadata {
				md := message.Metadata{transport.DeadReasonHeader: text, transport.DeadErrorHeader: cause}
				for i := 0; i < len(more); i += 2 {
					md[more[i]] = more[i+1]
				}
				return md
			}
			letter("plain", "one", reason("permanent", long))
			letter("bytes", "two", reason("permanent", "hidden", "x", "\xff"))
			letter("bare", "three", nil)
			letter("nul", "four", reason("attempts", "a\x00b"))
			letter("body", "\xff\x00", reason("attempts", "é \"quoted\""))

			rows, err := w.raw.QueryContext(t.Context(), deadLetterSQL(t, kind))
			require.NoError(t, err)
			defer rows.Close()
			var got [][4]string
			for rows.Next() {
				var id int64
				var uuid, reason, cause, body stdsql.NullString
				require.NoError(t, rows.Scan(&id, &uuid, &reason, &cause, &body))
				if uuid.String == "body" {
					body.String = "" // is shown as the server can
				}
				got = append(got, [4]string{uuid.String, reason.String, cause.String, body.String})
			}
			require.NoError(t, rows.Err())
			nul := map[string]string{"postgres": "a\ufffdb", "mysql": "a\x00b"}[kind]
			require.Equal(t, [][4]string{
				{"plain", "permanent", long, "one"},
				{"bytes", "", "", "two"},
				{"bare", "", "", "three"},
				{"nul", "attempts", nul, "four"},
				{"body", "attempts", "é \"quoted\"", ""},
			}, got)
		})
	}
}

// TestTopicsByTheUserWhoWorks: with the rights that docs/databases.md names for
// work, a start with topology: declare makes topics and groups, and verify is
// content from then on.
func TestTopicsByTheUserWhoWorks(t *testing.T) {
	t.Parallel()
	for kind := range servers() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := worldOn(t, kind)
			require.NoError(t, w.open(t).Migrate(t.Context()))
			for _, statement := range map[string][]string{
				"postgres": {
					"REASSIGN OWNED BY $ TO CURRENT_USER",
					"GRANT USAGE ON SCHEMA $ TO $", "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA $ TO $",
				},
				"mysql": {"REVOKE ALL ON $.* FROM $", "GRANT SELECT, INSERT, UPDATE, DELETE ON $.* TO $"},
			}[kind] {
				w.do(t, statement)
			}
			tr := w.open(t)
			d := transport.Declaration{Topic: "orders.placed", Group: "charge"}
			err := tr.Declare(t.Context(), transport.TopologyVerify, d)
			require.ErrorContains(t, err, `topic "orders.placed" does not exist: start one worker once with topology: declare`)
			require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare, d))
			require.NoError(t, w.open(t).Declare(t.Context(), transport.TopologyVerify, d))
		})
	}
}
