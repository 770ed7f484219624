package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// GroupAdmin is implemented by a transport that can look after groups, besides
// having consumers in them.
type GroupAdmin interface {
	// Groups lists the groups of all topics, by topic and name. It makes nothing.
	Groups(ctx context.Context) ([]GroupInfo, error)
	// DropGroup forgets a group of a topic, and what waits for it. It returns
	// a [*GroupInUseError] and changes nothing while a member lives, and
	// [ErrNoGroup] where there is no such group. One that is dropped half, since ctx ended
	// or the process died, is there still and can be dropped again.
	DropGroup(ctx context.Context, topic, group string) error
}

// GroupInfo is a group of a topic, at one moment.
type GroupInfo struct {
	Topic, Group string
	Depth        Depth
	Members      []string // the instances of those alive, one entry each
}

// ErrNoGroup is a group, or a topic, that is not there.
var ErrNoGroup = errors.New("there is no such group")

// GroupInUseError refuses to drop a group that has members.
type GroupInUseError struct {
	Topic, Group string
	Members      []string
}

func (e *GroupInUseError) Error() string {
	return fmt.Sprintf("group %q of topic %q is read by %s: stop them first; one that was killed is gone when its lease has run out",
		e.Group, e.Topic, strings.Join(e.Members, ", "))
}

// Migrator is implemented by a transport that has a schema of ours in its broker.
type Migrator interface {
	// Database names what has the schema.
	Database() string
	// Pending lists the migrations that were not applied yet, in their order. It changes nothing.
	Pending(ctx context.Context) ([]Migration, error)
	// Migrate applies them. Several processes may do so at once.
	Migrate(ctx context.Context) error
	// Check says what is wrong with what is stored, nil if nothing is. It changes nothing.
	Check(ctx context.Context) ([]string, error)
}

// Migration is one step of a schema.
type Migration struct {
	Version int64
	Name    string
	SQL     string
}
