package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxObject is the most bytes that one object may have. An API server takes 3 MiB at the most; the limit keeps a file
// that is no list of objects from being held in memory whole.
const maxObject = 8 << 20

// A syntaxError is a break of JSON's grammar; place and problem are for people.
type syntaxError struct {
	at      place
	problem string
}

func (e *syntaxError) Error() string { return e.at.String() + ": " + e.problem }

// A scanner walks through a stream and knows no more of JSON than where a value ends.
type scanner struct {
	r   io.Reader
	err error
	// buf[pos:end] has been read but not taken.
	buf      []byte
	pos, end int
	// line is the line of buf[pos], from 1.
	line int32
	// mark is where rewind goes back to, or -1.
	mark     int
	markLine int32
}

func newScanner(r io.Reader) *scanner { return &scanner{r: r, line: 1, mark: -1} }

// reset starts over with bytes in memory.
func (s *scanner) reset(b []byte) {
	*s = scanner{err: io.EOF, buf: b, end: len(b), line: 1, mark: -1}
}

// setMark keeps what follows for a rewind; the mark is lost where that becomes more than maxObject bytes.
func (s *scanner) setMark() { s.mark, s.markLine = s.pos, s.line }

func (s *scanner) dropMark() { s.mark = -1 }

// rewind goes back to the mark, if it still stands.
func (s *scanner) rewind() bool {
	if s.mark < 0 {
		return false
	}
	s.pos, s.line = s.mark, s.markLine
	return true
}

// fill reads more behind buf[pos:end].
func (s *scanner) fill() error {
	if s.err != nil {
		return s.err
	}
	if s.mark >= 0 && s.pos-s.mark > maxObject {
		s.mark = -1
	}
	keep := s.pos
	if s.mark >= 0 {
		keep = s.mark
	}
	if keep > 0 {
		copy(s.buf, s.buf[keep:s.end])
		s.pos, s.end = s.pos-keep, s.end-keep
		if s.mark >= 0 {
			s.mark = 0
		}
	}
	if s.end == len(s.buf) {
		s.buf = append(s.buf, make([]byte, max(64<<10, len(s.buf)))...)
	}
	for range 100 {
		n, err := s.r.Read(s.buf[s.end:])
		s.end += n
		s.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// peek returns the next n bytes without taking them; fewer only with an error.
func (s *scanner) peek(n int) ([]byte, error) {
	for s.end-s.pos < n {
		if err := s.fill(); err != nil {
			return s.buf[s.pos:s.end], err
		}
	}
	return s.buf[s.pos : s.pos+n], nil
}

// discard takes n bytes that have been peeked at.
func (s *scanner) discard(n int) {
	s.line += int32(bytes.Count(s.buf[s.pos:s.pos+n], []byte{'\n'}))
	s.pos += n
}

// chunk returns the bytes that can be had without waiting, at least one.
func (s *scanner) chunk() ([]byte, error) {
	if s.pos == s.end {
		if err := s.fill(); err != nil {
			return nil, err
		}
	}
	return s.buf[s.pos:s.end], nil
}

// skipSpace moves to the next byte that is no white space, and returns it without taking it.
func (s *scanner) skipSpace() (byte, error) {
	for {
		chunk, err := s.chunk()
		if err != nil {
			return 0, err
		}
		for i, c := range chunk {
			if !isSpace(c) {
				s.discard(i)
				return c, nil
			}
		}
		s.discard(len(chunk))
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// skipBlankLines moves to the beginning of the next line that is not blank, and returns its first byte that is no white
// space: in YAML the indentation counts.
func (s *scanner) skipBlankLines() (byte, error) {
	for n := 1; ; n = s.end - s.pos + 1 {
		if n > maxObject {
			s.discard(n - 1)
			n = 1
		}
		if _, err := s.peek(n); err != nil {
			return 0, err
		}
		begin := 0
		for i, c := range s.buf[s.pos:s.end] {
			if c == '\n' {
				begin = i + 1
			}
			if !isSpace(c) {
				s.discard(begin)
				return c, nil
			}
		}
		s.discard(begin)
	}
}

// appendLine appends the rest of the line, with its end, to dst.
func (s *scanner) appendLine(dst []byte) ([]byte, error) {
	for {
		chunk, err := s.chunk()
		if err != nil {
			return dst, err
		}
		if i := bytes.IndexByte(chunk, '\n'); i >= 0 {
			dst = append(dst, chunk[:i+1]...)
			s.discard(i + 1)
			return dst, nil
		}
		dst = append(dst, chunk...)
		s.discard(len(chunk))
		if len(dst) > maxObject {
			return dst, nil
		}
	}
}

func (s *scanner) skipLine() error {
	for {
		chunk, err := s.chunk()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if i := bytes.IndexByte(chunk, '\n'); i >= 0 {
			s.discard(i + 1)
			return nil
		}
		s.discard(len(chunk))
	}
}

// value appends the JSON value that begins here to dst. Brackets are counted, not matched: the decoder checks the rest.
func (s *scanner) value(dst []byte, at place) ([]byte, error) {
	var end valueEnd
	start := len(dst)
	for {
		chunk, err := s.chunk()
		if errors.Is(err, io.EOF) && end.literal {
			return dst, nil
		}
		if err != nil {
			return dst, endOfInput(err, at)
		}
		n, done := end.find(chunk)
		dst = append(dst, chunk[:n]...)
		s.discard(n)
		if done {
			return dst, nil
		}
		if len(dst)-start > maxObject {
			return dst, tooLarge(at)
		}
	}
}

// valueEnd finds where a value ends, over several chunks.
type valueEnd struct {
	depth                      int
	inString, escaped, literal bool
}

// find returns how many bytes of the chunk belong to the value, and whether it ends with them.
func (v *valueEnd) find(chunk []byte) (int, bool) {
	for i := 0; i < len(chunk); i++ {
		c := chunk[i]
		switch {
		case v.escaped:
			v.escaped = false
		case v.inString:
			switch c {
			case '\\':
				v.escaped = true
			case '"':
				v.inString = false
				if v.depth == 0 {
					return i + 1, true
				}
			}
		case c == '"':
			v.inString = true
		case c == '{' || c == '[':
			v.depth++
		case c == '}' || c == ']':
			if v.depth == 0 {
				return i, true // the end of what surrounds a literal
			}
			v.depth--
			if v.depth == 0 {
				return i + 1, true
			}
		case v.depth > 0:
		case c == ',' || c == ':' || c <= ' ':
			return i, true
		default:
			v.literal = true
		}
	}
	return len(chunk), false
}

func endOfInput(err error, at place) error {
	if errors.Is(err, io.EOF) {
		return &syntaxError{at, "the JSON breaks off in the middle"}
	}
	return err
}

func tooLarge(at place) error {
	return &InputError{
		Where:   at.String(),
		Problem: fmt.Sprintf("this is larger than %d MiB, which no Kubernetes object is", maxObject>>20),
		Advice:  "pass a list of objects as kubectl get -o json prints it",
	}
}
