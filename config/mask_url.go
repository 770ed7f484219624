package config

import (
	"regexp"
	"strings"
)

var (
	urlStart  = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://`)
	login     = regexp.MustCompile(`[^\s"':@{\[,]+:[^\s"':][^\s"']*@`) // user:pass@ without a scheme
	parameter = regexp.MustCompile(`(?:^|[?&;,\s"'])([\w.-]+)=([^&;\s"'}]*)`)
	// A host with its port, and what a sentence puts behind it. What is not of this form has a password in it.
	hostPort = regexp.MustCompile(`^(?:\[[^\]]*\]|[^:]*)(?::(?:[0-9]*|PORT))?[:;.…"'\])}>]*$`)
	// What net/url quotes of a URL that it cannot read, beside the URL.
	quotedPart = regexp.MustCompile(`invalid (?:port \\*"(.*)\\*" after host|URL escape \\*"(%.{0,12}?)\\*")`)
)

// longestURL bounds the search for the end of one in quotes.
const longestURL = 4096

// MaskURL replaces what may be a credential in a message: the userinfo of every URL (amqp://user:pass@host becomes
// amqp://***@host), a login without a scheme (user:pass@tcp(host)), and parameters with a secret's name (?password=…).
// A URL ends where its quotes do, else at a space: an @ in the words after it is no end of a password. Within a URL it would
// rather mask too much: an unescaped @ or / in a password is covered.
func MaskURL(text string) string {
	out, _ := mask(text, append(messageURLs(text), plainSecrets(text)...), 0)
	return out
}

// maskWhole is MaskURL for a text that is one URL and nothing else: whatever stands before its last @ is covered.
func maskWhole(url string) string {
	start, at := strings.Index(url, "://"), strings.LastIndexByte(url, '@')
	if start < 0 || at < start {
		return MaskURL(url)
	}
	out, _ := mask(url, append(plainSecrets(url), span{start + len("://"), at}), 0)
	return out
}

// plainSecrets finds logins without a scheme, parameters with a secret's name, and parts of a URL in an error of net/url.
func plainSecrets(text string) []span {
	var spans []span
	for _, m := range login.FindAllStringIndex(text, -1) {
		if !strings.Contains(text[m[0]:m[1]], "://") {
			spans = append(spans, span{m[0], m[1] - 1})
		}
	}
	for _, m := range parameter.FindAllStringSubmatchIndex(text, -1) {
		if secretName(text[m[2]:m[3]]) {
			spans = append(spans, span{m[4], m[5]})
		}
	}
	for _, m := range quotedPart.FindAllStringSubmatchIndex(text, -1) {
		spans = append(spans, span{max(m[2], m[4]), max(m[3], m[5])})
	}
	return spans
}

// lineURLs finds the userinfo of URLs in a line of YAML. Nothing there tells where a password ends, so it is taken to end at
// the last @ before the next URL.
func lineURLs(line string) []span {
	var spans []span
	starts := urlStart.FindAllStringIndex(line, -1)
	for i := 0; i < len(starts); i++ {
		from, end := starts[i][1], len(line)
		for ; i+1 < len(starts); i++ {
			next := starts[i+1][0]
			if strings.ContainsRune(" \t\"'", rune(line[next-1])) && (strings.Contains(line[from:next], "@") || namesHosts(line[from:next])) {
				end = next
				break
			}
		}
		if at := strings.LastIndexByte(line[from:end], '@'); at >= 0 {
			spans = append(spans, span{from, from + at})
		}
	}
	return spans
}

// messageURLs finds the userinfo of URLs among words.
func messageURLs(text string) []span {
	var spans []span
	done, lineEnd := 0, -1
	for _, start := range urlStart.FindAllStringIndex(text, -1) {
		if start[0] < done {
			continue // in a password
		}
		from := start[1]
		if lineEnd < from {
			lineEnd = len(text)
			if n := strings.IndexByte(text[from:], '\n'); n >= 0 {
				lineEnd = from + n
			}
		}
		line := text[from:lineEnd]
		url := line[:urlEnd(text[:start[0]], line)]
		done = from + len(url)
		at := strings.LastIndexByte(url, '@')
		switch {
		case at >= 0 && !isUserinfo(text[start[0]:from], url[:at]):
		case at >= 0:
			spans = append(spans, span{from, from + at})
		case !namesHosts(url): // cut off, or a space in the password
			if at = strings.LastIndexByte(line, '@'); at < 0 {
				at = len(url)
			}
			done = from + at
			spans = append(spans, span{from, done})
		}
	}
	return spans
}

// urlEnd is where a URL that begins the line ends: at the quote that stands before it too, else at a space.
func urlEnd(before, line string) int {
	quote := byte(0)
	if before != "" {
		quote = before[len(before)-1]
	}
	if quote == '"' || quote == '\'' || quote == '`' {
		escapes := backslashes(before[:len(before)-1])
		for i := range min(len(line), longestURL) {
			if line[i] == quote && backslashes(line[:i]) <= escapes && endsWord(line[i+1:]) {
				return i
			}
		}
	}
	if space := strings.IndexAny(line, " \t\r"); space >= 0 {
		return space
	}
	return len(line)
}

// endsWord says whether a quote before rest is a closing one.
func endsWord(rest string) bool {
	return rest == "" || strings.ContainsRune(" \t\r:,;.)]}>\"'`\\", rune(rest[0]))
}

func backslashes(text string) int { return len(text) - len(strings.TrimRight(text, `\`)) }

// isUserinfo says whether what stands between a scheme and an @ is a login, or may be one with odd characters in it.
func isUserinfo(scheme, text string) bool {
	host, isPath := upTo(text, "/?#")
	switch {
	case text == "USER" || text == "USER:PASSWORD": // how messages say what to write
		return false
	case strings.HasPrefix(strings.ToLower(scheme), "http") && isPath && !strings.Contains(host, ":"):
		return false // no broker's URL, and the @ is the path's
	case strings.Contains(text, ":"), strings.HasPrefix(text, masked): // the part of a login that was known by its value
		return true
	}
	return !strings.ContainsAny(text, "/?#<>,\"'` \t")
}

// namesHosts says whether a URL without a login begins with hosts and numbers of ports.
func namesHosts(url string) bool {
	host, _ := upTo(url, "/?# \t")
	for part := range strings.SplitSeq(host, ",") {
		if !hostPort.MatchString(part) {
			return false
		}
	}
	return true
}

// upTo is what stands before the first of several characters, and whether there is one.
func upTo(text, chars string) (before string, found bool) {
	if i := strings.IndexAny(text, chars); i >= 0 {
		return text[:i], true
	}
	return text, false
}
