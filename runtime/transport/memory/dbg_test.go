package memory_test

import "fmt"

func (m *model) Errorf(f string, a ...any) { fmt.Printf(f, a...); m.T.Errorf(f, a...) }
