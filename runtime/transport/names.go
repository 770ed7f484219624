package transport

import (
	"fmt"
	"regexp"
	"strings"
)

// DefaultDeadTopic is the dead letter of a consumer that names none.
const DefaultDeadTopic = "{topic}--{group}--dead"

// MaxName is the longest topic or group name, in bytes: Kafka's limit.
const MaxName = 249

var legalName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

// CheckName refuses a topic or group name that is not legal on every broker.
func CheckName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s name is empty", what)
	case len(name) > MaxName:
		return fmt.Errorf("%s name %q… has %d bytes, at most %d are legal", what, name[:32], len(name), MaxName)
	case !legalName.MatchString(name), name == ".", name == "..":
		return fmt.Errorf("%s name %q: only letters, digits, '.', '_' and '-' are legal", what, name)
	}
	return nil
}

// DeadTopic fills a dead-letter template. Where it holds both `{topic}` and
// `{group}`, neither may contain "--" or begin or end with "-": no two pairs
// may meet in one name.
func DeadTopic(template, topic, group string) (string, error) {
	if strings.Contains(template, "{topic}") && strings.Contains(template, "{group}") {
		for _, n := range []struct{ what, name string }{{"topic", topic}, {"group", group}} {
			if strings.Contains("-"+n.name+"-", "--") {
				return "", fmt.Errorf(`%s name %q contains "--" or has "-" at an end, so the dead letter %q would be ambiguous: rename it, or name a dead letter`, n.what, n.name, template)
			}
		}
	}
	name := strings.NewReplacer("{topic}", topic, "{group}", group).Replace(template)
	return name, CheckName("dead letter", name)
}
