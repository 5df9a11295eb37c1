package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Stdin is the file name that means standard input.
const Stdin = "-"

// Load reads files of Kubernetes objects: YAML or JSON, several documents, Lists of any depth. Objects are taken one by
// one; beyond what is kept, memory does not grow with the input. A mistake in the input comes back as *InputError, the
// first one only. stdin is read where a name is Stdin.
func Load(files []string, stdin io.Reader) (*Inventory, error) {
	b := newBuilder()
	seen := map[string]bool{}
	for _, file := range files {
		if seen[file] {
			return nil, &InputError{Where: file, Problem: "this file is given twice", Advice: "name it once"}
		}
		seen[file] = true
		if err := b.loadFile(file, stdin); err != nil {
			return nil, err
		}
	}
	return b.build(), nil
}

func (b *builder) loadFile(file string, stdin io.Reader) error {
	if file == Stdin {
		return b.load("standard input", stdin)
	}
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &InputError{Where: file, Problem: "no such file", Err: err, Advice: "check the path; - reads standard input"}
	case err == nil && info.IsDir():
		return &InputError{
			Where: file, Problem: "this is a directory",
			Advice: "name its files one by one (-f a.yaml -f b.yaml), or pipe them in: cat " + file + "/*.json | kubectl rollcall check -f -",
		}
	}
	f, err := os.Open(file)
	if err != nil {
		return &InputError{Where: file, Problem: fmt.Sprintf("cannot be opened: %v", bare(err)), Err: err}
	}
	defer f.Close()
	return b.load(file, f)
}

// bare takes the path out of an error that is shown beside it anyway.
func bare(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// load reads one stream to its end.
func (b *builder) load(name string, r io.Reader) error {
	before := b.read
	l := &loader{b: b, s: newScanner(r), at: place{file: name}, json: jsonValue{b: b}}
	if err := l.checkEncoding(); err != nil {
		return err
	}
	for {
		first, err := l.nextDocument()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return l.failed(err)
		}
		l.at.doc++
		l.at.line = l.s.line
		if err := l.document(first); err != nil {
			return err
		}
	}
	if b.read == before {
		return &InputError{
			Where: name, Problem: "there is no Kubernetes object in it",
			Advice: "fill it with, for example: kubectl get nodes,pods,replicasets,statefulsets,daemonsets,jobs -A -o json",
		}
	}
	return nil
}

// A loader takes the documents of one stream apart.
type loader struct {
	b    *builder
	s    *scanner
	at   place
	json jsonValue
	yaml yamlText
}

func (l *loader) checkEncoding() error {
	head, err := l.s.peek(3)
	if err != nil && !errors.Is(err, io.EOF) {
		return l.failed(err)
	}
	switch {
	case bytes.HasPrefix(head, []byte{0xEF, 0xBB, 0xBF}):
		l.s.discard(3)
	case bytes.HasPrefix(head, []byte{0xFF, 0xFE}), bytes.HasPrefix(head, []byte{0xFE, 0xFF}):
		return &InputError{
			Where: l.at.file, Problem: "this is UTF-16, as PowerShell's > writes it",
			Advice: "write UTF-8: kubectl get … -o json | Out-File -Encoding utf8 FILE",
		}
	}
	return nil
}

// nextDocument skips blank lines, comments and document markers, and returns the first byte of what follows; io.EOF at the
// end.
func (l *loader) nextDocument() (byte, error) {
	for {
		c, err := l.s.skipBlankLines()
		if err != nil {
			return 0, err
		}
		marker, _ := l.s.peek(4)
		switch {
		case c == '#':
			if err := l.s.skipLine(); err != nil {
				return 0, err
			}
		case isMarker(marker):
			l.s.discard(3)
		default:
			return c, nil
		}
	}
}

// document reads the document that begins here, as JSON where it begins like it.
func (l *loader) document(first byte) error {
	if first != '{' && first != '[' {
		return l.yamlDocument()
	}
	// YAML's flow style begins like JSON: until the first object is taken, a second try is open.
	l.s.setMark()
	before := l.b.read
	l.json.s = l.s
	err := l.json.read(l.at)
	var syntax *syntaxError
	if !errors.As(err, &syntax) || l.b.read != before || !l.s.rewind() {
		l.s.dropMark()
		return l.failed(err)
	}
	l.s.dropMark()
	if l.yamlDocument() != nil {
		return l.failed(err)
	}
	return nil
}

// failed says where reading itself failed; an InputError already knows.
func (l *loader) failed(err error) error {
	var input *InputError
	if err == nil || errors.As(err, &input) {
		return err
	}
	var syntax *syntaxError
	if errors.As(err, &syntax) {
		return &InputError{
			Where: syntax.at.String(), Problem: syntax.problem, Err: err,
			Advice: "is the file complete? Compare it with what kubectl get -o json prints",
		}
	}
	return &InputError{Where: l.at.String(), Problem: fmt.Sprintf("cannot be read: %v", bare(err)), Err: err}
}
