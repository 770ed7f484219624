package config

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// order holds what is asked of order against what the transport keeps.
func (l *linter) order(c *Consumer) {
	path := "consumers." + c.Name
	if c.OrderedBy.Key != "" && len(c.Wrap) > 0 {
		l.errs.add(l.at(c, "ordered_by", "wrap"), path+".ordered_by",
			"%s: ordered_by: {key: %s} reads the message as received, before wrap has unpacked it; take wrap away, or order by the message's own key", path, c.OrderedBy.Key)
	}
	facts, known := l.Facts.Brokers[c.Broker]
	if !known || c.OrderedBy.Mode != OrderedByKey || c.OrderScope == ScopeWorker || facts.KeyOrderScope == ScopeGroup {
		return
	}
	if c.OrderedBy.Key != "" {
		return // worker scope everywhere, as its own docs say
	}
	l.errs.add(l.at(c, "ordered_by"), path+".ordered_by",
		"%s: ordered_by: key on %s keeps order only within one worker, not across instances; write order_scope: worker if that is understood, or ordered_by: none", path, l.BrokerOf(c.Broker).Kind)
}

// dedup checks that there is a store for the keys, and that they are kept long enough.
func (l *linter) dedup(c *Consumer) {
	if c.Dedup == nil {
		return
	}
	path := "consumers." + c.Name
	if facts, known := l.Facts.Brokers[c.Broker]; known {
		switch {
		case l.Store.IsZero() && !facts.SQL:
			mend := "write store: sqlite://… or another SQL store"
			if !facts.Networked {
				mend += ", or store: memory, which forgets at a restart"
			}
			l.errs.add(l.at(c, "dedup"), path+".dedup",
				"%s: dedup has no store for its keys, and %s keeps none; %s", path, l.BrokerOf(c.Broker).Kind, mend)
		case !l.Store.IsZero() && l.StorePerProcess && facts.Networked:
			l.errs.add(l.root.get("store").at, "store",
				"store: %s is seen by one process only, but the broker of %s is shared by many, so a duplicate at another instance would not be recognised; write store: postgres://… or another SQL store", l.Store.Kind, path)
		}
	}
	if longest := c.Retry.Longest(c.Timeout); c.Dedup.Window < longest {
		l.errs.add(l.at(c, "dedup.window", "dedup", "retry", "timeout"), path+".dedup.window",
			"%s: dedup.window (%s) is shorter than the longest redelivery (%s: %s), so a retried message could be handled twice; raise window to %s or more",
			path, c.Dedup.Window, longest.rounded(), attempts(c.Retry.Attempts), longest.rounded())
	}
}

const maxName = 249

var legalName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

// names checks topics, groups and what is derived from them.
func (l *linter) names(c *Consumer) {
	path := "consumers." + c.Name
	longest := l.longest(c.Broker)
	joined := l.Facts.Brokers[c.Broker].DerivesNames
	mend := func(what string) string {
		switch {
		case !joined && strings.Contains(string(c.DeadLetter), "{"+what+"}"):
			return "take it out, or, as only the dead letter is derived, name that without {" + what + "}"
		case joined && what == "topic":
			return fmt.Sprintf("take it out; to read a dead letter, read its queue by another name: broker: {%s: {url: …, topics: {letters: {queue: DEAD-LETTER}}}} and topic: letters", l.BrokerOf(c.Broker).Kind)
		case joined:
			return "take it out"
		}
		return ""
	}

	legal := l.badName && !has(l.root.get("consumers").get(c.Name), "group") ||
		l.name(l.at(c, "group"), path+".group", "group", c.Group, longest, mend("group"))
	for _, topic := range c.Topics {
		legal = l.name(l.at(c, "topic", "topics"), path+".topic", "topic", topic, longest, mend("topic")) && legal
	}
	if !c.PublishTo.IsZero() {
		l.name(l.at(c, "publish_to"), path+".publish_to", "topic", c.PublishTo.Topic, l.longest(cmp.Or(c.PublishTo.Broker, c.Broker)), "")
	}
	if legal && !l.badName {
		l.deadLetter(c, path, longest)
	}
}

func (l *linter) longest(broker string) int { return cmp.Or(l.Facts.Brokers[broker].MaxName, maxName) }

// name checks one name and says whether it is legal. Where names are derived from it, mend says what to do about one that holds "--".
func (l *linter) name(at place, path, what, name string, longest int, mend string) bool {
	switch {
	case name == "":
		l.errs.add(at, path, "%s: the name of the %s is empty", path, what)
	case !legalName.MatchString(name) || name == "." || name == "..":
		l.errs.add(at, path, "%s: the %s %q is not a legal name on every broker; use letters, digits, '.', '_' and '-'", path, what, clip(name))
	case len(name) > longest:
		l.errs.add(at, path, "%s: the %s has %d characters; the most is %d", path, what, len(name), longest)
	case mend != "" && strings.Contains("-"+name+"-", "--"):
		l.errs.add(at, path, "%s: the %s %q holds \"--\", or has \"-\" at an end; that joins the parts of derived names (%s); %s",
			path, what, clip(name), DefaultDeadLetter, mend)
	default:
		return true
	}
	return false
}

// deadLetter checks the topic that messages end in.
func (l *linter) deadLetter(c *Consumer, path string, longest int) {
	at, option := l.at(c, "dead_letter"), path+".dead_letter"
	for _, topic := range c.Topics {
		target := c.DeadLetter.Topic(topic, c.Group)
		switch {
		case c.DeadLetter == DeadLetterDrop || c.DeadLetter == DeadLetterBlock:
			return
		case c.DeadLetter == "off" || c.DeadLetter == "none":
			l.errs.add(at, option, "%s: %q would be a topic of that name; write drop to throw such messages away, or block to try them for ever", option, c.DeadLetter)
			return
		case !legalName.MatchString(target):
			l.errs.add(at, option, "%s: %q is not a legal topic; use letters, digits, '.', '_', '-' and the placeholders {topic} and {group}, or drop, or block", option, clip(string(c.DeadLetter)))
			return
		case len(target) > longest:
			l.errs.add(at, option, "%s: the dead letter of topic %q has %d characters; the most is %d: shorten topic or group, or give dead_letter a name of its own", option, clip(topic), len(target), longest)
		case nearest(target, []string{"off", "none", string(DeadLetterDrop), string(DeadLetterBlock)}) != "":
			l.warnings.add(at, option, "%s: %q is a topic of that name here; did you mean drop, which throws such messages away, or block, which tries them for ever?", option, clip(target))
		case slices.Contains(c.Topics, target):
			l.errs.add(at, option, "%s: %q is a topic this consumer reads, so a message that can't be handled would come back for ever; give it another name", option, clip(target))
		}
	}
}

// at is the position of the first of the options that the consumer has, else that it inherits, else of the consumer.
func (l *linter) at(c *Consumer, options ...string) place {
	entries := l.root.get("consumers")
	for _, from := range []*node{entries.get(c.Name), l.root.get("defaults")} {
		for _, option := range options {
			if at, ok := find(from, strings.Split(option, ".")); ok {
				return at
			}
		}
	}
	return keyPlace(entries, c.Name)
}

// find is the position of an option: its value, or its key where the value is a map or a list.
func find(n *node, keys []string) (place, bool) {
	value := n.get(keys[0])
	switch {
	case value == nil || value.null:
		return place{}, false
	case len(keys) > 1:
		return find(value, keys[1:])
	case value.kind == scalarNode:
		return value.at, true
	}
	return keyPlace(n, keys[0]), true
}

// held warns where a message may be held for longer than the broker lets it: it waits for its turn, behind all others of its
// key at worst, and then for its attempts.
func (l *linter) held(c *Consumer) {
	most := l.Facts.Brokers[c.Broker].AckTimeout
	if most == 0 || c.Timeout == 0 {
		return
	}
	path := "consumers." + c.Name
	turns, per := (c.Prefetch+c.Concurrency-1)/max(1, c.Concurrency), fmt.Sprintf("prefetch ÷ concurrency = %d", (c.Prefetch+c.Concurrency-1)/max(1, c.Concurrency))
	if c.OrderedBy.Mode == OrderedByKey || c.OrderedBy.Mode == OrderedByPartition || c.OrderedBy.Mode == "" && l.Facts.Brokers[c.Broker].KeyOrderScope == ScopeGroup {
		turns, per = c.Prefetch, fmt.Sprintf("prefetch = %d, all of one key", c.Prefetch)
	}
	longest := saturated(float64(turns)*float64(c.Timeout) + float64(c.Retry.Longest(c.Timeout)))
	if longest > most {
		l.warnings.add(l.at(c, "prefetch", "timeout", "concurrency"), path+".prefetch",
			"%s: a message may be held for %s (%s times timeout %s, and %s), and %s takes it back after %s, so that it runs again; lower prefetch or timeout, or raise consumer_timeout at the broker and here",
			path, longest.rounded(), per, c.Timeout, attempts(c.Retry.Attempts), l.BrokerOf(c.Broker).Kind, most)
	}
}

// readers warns of outputs that nobody here reads, where the broker refuses what nobody reads.
func (l *linter) readers(c *Consumer) {
	broker, topic := cmp.Or(c.PublishTo.Broker, c.Broker), c.PublishTo.Topic
	if topic == "" || !l.Facts.Brokers[broker].NeedsReader {
		return
	}
	for _, other := range l.Consumers {
		if l.BrokerOf(other.Broker).identity() == l.BrokerOf(broker).identity() && slices.Contains(other.Topics, topic) {
			return
		}
	}
	path := "consumers." + c.Name + ".publish_to"
	l.warnings.add(l.at(c, "publish_to"), path,
		"%s: no consumer here reads %q, and %s refuses what no queue takes: until another service has its queue bound, publishing is tried again and intake stops; the same holds for topics that handlers emit to; to have such messages dropped instead, write broker: {%[3]s: {url: …, unrouted: drop}}",
		path, topic, l.BrokerOf(broker).Kind)
}

// rounded is the duration rounded up to something short to write.
func (d Duration) rounded() Duration {
	unit := time.Second
	if d.Std() > time.Hour {
		unit = time.Minute
	}
	return Duration((d.Std() + unit - 1).Truncate(unit))
}

func attempts(n int) string {
	if n == Unlimited {
		return "one wait and one timeout, of attempts without limit"
	}
	return fmt.Sprintf("all waits and timeouts of %d attempts", n)
}

func listed(known []string) string { return strings.Join(known, ", ") }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
