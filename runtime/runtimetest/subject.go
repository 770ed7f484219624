package runtimetest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	yaml "go.yaml.in/yaml/v4"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/worker"
)

// Subject is what is tested: a worker as a file describes it, or one consumer
// made in code.
type Subject struct {
	build func(*rig) (*runtime.Router, func(context.Context) error, error)
}

// File is the worker of a file. parts are what it names, as they are given to
// worker.Main: builtin.All among them if the file uses built-in handlers.
func File(path string, parts ...worker.Option) Subject {
	return Config(config.Options{Files: []string{path}}, parts...)
}

// YAML is the worker of a text.
func YAML(text string, parts ...worker.Option) Subject {
	return Config(config.Options{Data: []config.Data{{Name: "worker.yaml", Text: []byte(text)}}}, parts...)
}

// Config is the worker of several files, or of one whose references are to be
// found elsewhere than in the environment. Set may not name brokers: those
// are the kit's.
func Config(o config.Options, parts ...worker.Option) Subject {
	return Subject{func(r *rig) (*runtime.Router, func(context.Context) error, error) {
		o, err := overlaid(o)
		if err != nil {
			return nil, nil, err
		}
		w, err := worker.New(append(append([]worker.Option(nil), parts...), worker.Parts(r.table()), worker.Config(o))...)
		if err != nil {
			return nil, nil, err
		}
		return w.Router(), w.Run, nil
	}}
}

// Consumer is one consumer without a file. A policy without Middleware gets
// the standard chain; its group is the consumer's name by default.
func Consumer(name, topic string, h message.HandlerFunc, p transport.Policy) Subject {
	return Subject{func(r *rig) (*runtime.Router, func(context.Context) error, error) {
		t := r.broker("")
		p := p.Defaults(name, t.Capabilities())
		if p.Middleware == nil {
			p.Middleware = middleware.Default(p)
		}
		router := runtime.NewRouter(runtime.Options{})
		return router, router.Run, router.Consume(name, t, topic, h, p)
	}}
}

// kind is what the kit's brokers and store are called in a file.
const kind = "runtimetest"

// overlaid puts the kit's brokers and store over those of the files. It lies
// below the references, so nothing of what it covers is ever looked up.
func overlaid(o config.Options) (config.Options, error) {
	for _, set := range o.Set {
		if strings.HasPrefix(set, "broker") {
			return o, fmt.Errorf("set %q: brokers are the kit's own; name them in the file or in Data", set)
		}
	}
	texts := o.Data
	files := o.Files
	if len(files) == 0 && len(texts) == 0 {
		files = []string{config.DefaultFile}
	}
	for _, name := range files {
		if text, err := os.ReadFile(name); err == nil {
			texts = append(slices.Clip(texts), config.Data{Text: text})
		}
	}
	over := []string{"store=" + kind, `http={listen: "off"}`, `telemetry={traces: "off"}`, "topology=declare"}
	for _, text := range texts {
		for _, path := range brokersOf(text.Text) {
			over = append(over, path+"="+kind+"://")
		}
	}
	o.Set = append(slices.Clip(o.Set), over...)
	return o, nil
}

// brokersOf gives the paths of the brokers that a text configures; none if it
// is not YAML, which config.Load will say better.
func brokersOf(text []byte) (paths []string) {
	var document yaml.Node
	if yaml.Load(text, &document) != nil || len(document.Content) == 0 {
		return nil
	}
	eachKey(document.Content[0], func(key string, value *yaml.Node) {
		switch key {
		case "broker":
			paths = append(paths, key)
		case "brokers":
			eachKey(value, func(name string, _ *yaml.Node) { paths = append(paths, key+`."`+name+`"`) })
		}
	})
	return paths
}

func eachKey(n *yaml.Node, fn func(key string, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		fn(n.Content[i].Value, n.Content[i+1])
	}
}
