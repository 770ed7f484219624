package worker

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/mattn/go-isatty"

	"github.com/leat-io/leat/config"
)

// logFlags say how a command logs to standard error.
type logFlags struct {
	LogFormat string `enum:"auto,text,json" default:"auto" help:"auto, text or json. Auto is text on a terminal, else json."`
	LogLevel  string `enum:"debug,info,warn,error" default:"info" help:"debug, info, warn or error."`
}

// text tells whether logs are for people.
func (f *logFlags) text(w io.Writer) bool {
	return f.LogFormat == "text" || f.LogFormat == "auto" && isTerminal(w)
}

func (f *logFlags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.LogLevel)) // the flag's values are all levels
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if f.text(w) {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// readable masks credentials in URLs, which an error of a driver or of a
// handler may quote, and gives durations their unit.
func readable(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case string:
		return slog.String(a.Key, config.MaskURL(v))
	case time.Duration:
		return slog.String(a.Key, v.String())
	case error:
		return slog.String(a.Key, config.MaskURL(v.Error()))
	}
	return a
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
