package config

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// wholeNumber leaves out 010, which is eight to some readers of YAML and ten to others.
var wholeNumber = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`)

// decimal is a number with a point or an exponent.
var decimal = regexp.MustCompile(`^[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

func isText(v reflect.Value) bool {
	_, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr())
	return ok
}

// scalar decodes one value and checks it by the tag of its field.
func (d *decoder) scalar(n *node, v reflect.Value, tag reflect.StructTag, path string) {
	var problem string
	text, hasText := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr())
	switch {
	case v.Type() == secretType:
		v.Set(reflect.ValueOf(NewSecret(n.value)))
	case v.Type() == stdDurationType:
		parsed, err := ParseDuration(n.value)
		if problem = parseProblem(n, err); problem == "" {
			v.SetInt(int64(parsed))
		}
	case hasText:
		problem = parseProblem(n, text.UnmarshalText([]byte(n.value)))
	case v.Kind() == reflect.String:
		v.SetString(n.value)
	case v.Kind() == reflect.Bool:
		if n.value != "true" && n.value != "false" || !n.plain && !n.referred {
			problem = describe(n) + " is neither true nor false"
			break
		}
		v.SetBool(n.value == "true")
	case v.CanInt() || v.CanUint():
		problem = setWhole(n, v)
	case v.CanFloat():
		f, err := strconv.ParseFloat(n.value, 64)
		if problem = quoted(n); problem != "" {
			break
		}
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			problem = describe(n) + " is not a number"
			break
		}
		v.SetFloat(f)
	default:
		panic(fmt.Sprintf("config: %s: a field of type %s can't be decoded", path, v.Type()))
	}
	if problem == "" {
		problem = checkTag(n, v, tag)
	}
	if problem != "" {
		d.add(n.at, path, "%s: %s", path, problem)
	}
}

// quoted refuses text where a number is due. A reference inside {…} can't stand without quotes, so there they mean nothing.
func quoted(n *node) string {
	if n.plain || n.referred {
		return ""
	}
	return describe(n) + " is quoted text, not a number; take the quotes away"
}

func setWhole(n *node, v reflect.Value) string {
	if problem := quoted(n); problem != "" {
		return problem
	}
	if !wholeNumber.MatchString(n.value) {
		return describe(n) + " is not a whole number"
	}
	if v.CanInt() {
		i, err := strconv.ParseInt(n.value, 10, 64)
		if err != nil || v.OverflowInt(i) {
			return describe(n) + " is too large"
		}
		v.SetInt(i)
		return ""
	}
	u, err := strconv.ParseUint(strings.TrimPrefix(n.value, "+"), 10, 64)
	if err != nil || v.OverflowUint(u) {
		return describe(n) + " is too large or negative"
	}
	v.SetUint(u)
	return ""
}

// parseProblem is the text of a parser's error, which quotes the value, unless the value must not be seen.
func parseProblem(n *node, err error) string {
	switch {
	case err == nil:
		return ""
	case !n.referred && !n.secret:
		return err.Error()
	}
	if hint, ok := strings.CutPrefix(err.Error(), strconv.Quote(n.value)+" "); ok && !strings.Contains(hint, n.value) {
		return describe(n) + " " + hint
	}
	return describe(n) + " can't be read"
}

// checkTag holds a value against the enum, min and max of its field.
func checkTag(n *node, v reflect.Value, tag reflect.StructTag) string {
	if words := tag.Get("enum"); words != "" {
		known := strings.Split(words, ",")
		if !slices.Contains(known, v.String()) {
			if len(known) == 1 {
				return describe(n) + " can't be; the only value is " + words
			}
			return describe(n) + " is not one of " + strings.Join(known, ", ") + meant(n, known)
		}
	}
	if least := tag.Get("min"); least != "" && number(v) < limit(least) {
		return fmt.Sprintf("%s is too small; the least is %s", describe(n), least)
	}
	if most := tag.Get("max"); most != "" && number(v) > limit(most) {
		return fmt.Sprintf("%s is too large; the most is %s", describe(n), most)
	}
	return ""
}

func meant(n *node, known []string) string {
	best := nearest(n.value, known)
	if best == "" || n.referred || n.secret {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

func number(v reflect.Value) float64 {
	switch {
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	}
	return v.Float()
}

// limit reads a min or max tag: a number, a duration or a size.
func limit(text string) float64 {
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return f
	}
	if d, err := time.ParseDuration(text); err == nil {
		return float64(d)
	}
	s, err := ParseSize(text)
	if err != nil {
		panic("config: a min or max tag that is no number, duration or size: " + text)
	}
	return float64(s)
}

// describe names a value in a message, without showing what must not be seen.
func describe(n *node) string {
	switch {
	case n.kind == mapNode:
		return "a map"
	case n.kind == listNode:
		return "a list"
	case n.null:
		return "nothing"
	case n.referred:
		return "the value of the reference"
	case n.secret:
		return "the value"
	}
	return strconv.Quote(clip(maskWhole(n.value)))
}

// redact takes what must not be seen out of a message that an owner wrote: the values of references and secrets, and the
// logins of URLs, at or below n.
func redact(n *node, message string) string {
	const tooShortToHide = 4
	if (n.referred || n.secret) && len(n.value) >= tooShortToHide {
		message = replaced(message, n.value, masked)
	} else if start, at := strings.Index(n.value, "://"), strings.LastIndexByte(n.value, '@'); n.kind == scalarNode && start >= 0 && start < at {
		message = replaced(message, n.value, maskWhole(n.value))
		if cut := strings.IndexByte(n.value, '#'); start < cut && cut < at { // net/url shows what stands before it
			message = replaced(message, n.value[:cut], n.value[:start]+"://"+masked)
		}
	}
	for _, f := range n.fields {
		message = redact(f.value, message)
	}
	for _, item := range n.items {
		message = redact(item, message)
	}
	return message
}

// replaced puts another text in the place of one that a message shows plain or quoted, whole or clipped.
func replaced(message, text, by string) string {
	for _, shown := range []string{text, clip(text)} {
		quoted := strconv.Quote(shown)
		message = strings.NewReplacer(shown, by, quoted[1:len(quoted)-1], by).Replace(message)
	}
	return message
}

// clip shortens what a message quotes.
func clip(text string) string {
	if runes := []rune(text); len(runes) > 60 {
		return string(runes[:60]) + "…"
	}
	return text
}

// plainValue is what a node means without a type: a map, a list, null, a boolean, an int64, a float64 or a string.
func plainValue(n *node) any {
	switch n.kind {
	case mapNode:
		out := make(map[string]any, len(n.fields))
		for _, f := range n.fields {
			out[f.key] = plainValue(f.value)
		}
		return out
	case listNode:
		out := make([]any, len(n.items))
		for i, item := range n.items {
			out[i] = plainValue(item)
		}
		return out
	case scalarNode:
	}
	switch {
	case n.null:
		return nil
	case !n.plain:
	case n.value == "true" || n.value == "false":
		return n.value == "true"
	case wholeNumber.MatchString(n.value):
		if i, err := strconv.ParseInt(n.value, 10, 64); err == nil {
			return i
		}
	case decimal.MatchString(n.value):
		if f, err := strconv.ParseFloat(n.value, 64); err == nil {
			return f
		}
	}
	return n.value
}
