package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// splitAbove is the size in bytes above which a YAML document is taken apart by the indentation of its items. Below it
// the parser gets the whole document: a List of a few hundred pods.
const splitAbove = 1 << 20

// yamlText holds what yamlDocument uses again for each document.
type yamlText struct {
	doc  []byte
	json scanner
}

// isMarker tells whether a line begins with a marker between documents.
func isMarker(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("...")) {
		return false
	}
	return len(line) == 3 || isSpace(line[3])
}

// yamlDocument reads up to the next marker. A large List is read item by item.
func (l *loader) yamlDocument() error {
	doc := l.yaml.doc[:0]
	defer func() { l.yaml.doc = doc[:0] }()
	var split *splitter
	for {
		if marker, _ := l.s.peek(4); isMarker(marker) {
			break
		}
		start := len(doc)
		var err error
		doc, err = l.s.appendLine(doc)
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return l.failed(err)
		case len(doc) > maxObject:
			return tooLarge(l.at)
		case split == nil && len(doc) > splitAbove:
			split = &splitter{l: l, at: l.at, next: l.at.line}
			for line := range bytes.Lines(doc) {
				if err := split.line(line); err != nil {
					return err
				}
			}
			doc = doc[:0]
		case split != nil:
			if err := split.line(doc[start:]); err != nil {
				return err
			}
			doc = doc[:0]
		}
		if err != nil {
			break
		}
	}
	if split != nil {
		return split.end()
	}
	return l.convert(doc, l.at, l.at.line, (*jsonValue).read)
}

// convert turns a piece of YAML that begins at the line into JSON and has it read. Nothing but comments is no object.
func (l *loader) convert(text []byte, at place, line int32, read func(*jsonValue, place) error) error {
	converted, err := yaml.YAMLToJSON(text)
	if err != nil {
		return &InputError{
			Where: at.String(), Problem: "this is no YAML: " + withLine(err, line), Err: err,
			Advice: "compare it with what kubectl get -o yaml prints",
		}
	}
	if bytes.Equal(bytes.TrimSpace(converted), []byte("null")) {
		return nil
	}
	l.yaml.json.reset(converted)
	l.json.s = &l.yaml.json
	return l.failed(read(&l.json, at))
}

var lineNumber = regexp.MustCompile(`\bline (\d+)`)

// withLine makes the parser's line numbers those of the file.
func withLine(err error, first int32) string {
	text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	text = strings.Join(strings.Fields(strings.TrimPrefix(text, "yaml: ")), " ")
	return lineNumber.ReplaceAllStringFunc(text, func(match string) string {
		n, _ := strconv.Atoi(strings.TrimPrefix(match, "line "))
		return fmt.Sprintf("line %d", n+int(first)-1)
	})
}
