package worker

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/leat-io/leat/config"
)

type schemaCommand struct{}

// schemaDocs are the comments of all fields that a file can set, as JSON.
// TestSchemaDocs writes it.
//
//go:embed schema_docs.json
var schemaDocs []byte

// Run prints the JSON Schema of files for this program.
func (schemaCommand) Run(p *process) error {
	o, err := gather(p.opts)
	if err != nil {
		return err
	}
	parts := o.table.parts()
	if err := json.Unmarshal(schemaDocs, &parts.Docs); err != nil {
		return fmt.Errorf("documentation of options: %w", err)
	}
	schema, err := config.Schema(parts)
	if err != nil {
		return fmt.Errorf("schema: %w", err)
	}
	_, err = p.out.Write(schema)
	return err
}

// parts is the table as a schema tells of it.
func (t *Table) parts() config.Parts {
	var p config.Parts
	for _, k := range t.Transports {
		p.Transports = append(p.Transports, config.Part{Kind: k.Kind, Schemes: k.Schemes, Doc: k.Doc, Options: k.Options})
	}
	for _, k := range t.Stores {
		p.Stores = append(p.Stores, config.Part{Kind: k.Kind, Schemes: k.Schemes, Doc: k.Doc, Options: k.Options})
	}
	for _, k := range t.Handlers {
		p.Handlers = append(p.Handlers, config.Part{Kind: k.Name, Doc: k.Doc, Options: k.Options})
	}
	for _, k := range t.Middleware {
		if k.Build != nil {
			p.Middleware = append(p.Middleware, config.Part{Kind: k.Name, Doc: k.Doc, Options: k.Options})
		}
	}
	return p
}
