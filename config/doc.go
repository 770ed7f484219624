// Package config reads the YAML file of a worker.
//
// It knows the shape of the file and nothing of what stands behind it: a broker, a store, a handler or a middleware is a
// [Component], whose options are decoded by the package that owns them, with the same positions and the same strictness.
//
// The way of a file: read (at most 1 MiB, one document, no anchors) → overlay by further files and --set → references
// (${VAR}, ${file:PATH}) replaced in parsed values, never in the text → decoded over defaults → checked.
// Whatever is wrong is reported at once as an [Error], each [Problem] with its position and its source line.
//
//	c, err := config.Load(config.Options{Files: []string{"worker.yaml"}})
//	...
//	var opts kafkaOptions
//	err = c.Broker.Decode(&opts)
//	...
//	errs, warnings := c.Lint(facts)
//
// Secrets: an error shows no value of a reference, of a key with a secret's name (password, token, …) or of a [Secret], and
// no userinfo of a URL. A formatted [Config] shows no [Secret], no option of a component and no userinfo.
package config
