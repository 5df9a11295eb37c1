package inventory

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxDepth is how deep Lists may stand in Lists.
const maxDepth = 16

// maxPending is how many bytes of items may wait for a List to say, behind them, of what kind they are.
const maxPending = 256 << 20

// A jsonValue reads one JSON value from a stream: an object, a List whose items it takes one by one without holding the
// List, or an array of these.
type jsonValue struct {
	b *builder
	s *scanner
	// buffers hold the object being read at each depth; they are used again.
	buffers [maxDepth + 1][]byte
}

// A list is a List, or an array, whose items are being read.
type list struct {
	// item is what an item without apiVersion and kind is, as in what the API itself returns; empty where not known.
	item metav1.TypeMeta
	// pending are the items that wait for it.
	pending []pendingItem
	waiting int
}

type pendingItem struct {
	raw []byte
	at  place
}

// read reads the value that begins here.
func (j *jsonValue) read(at place) error {
	c, err := j.s.skipSpace()
	if err != nil {
		return endOfInput(err, at)
	}
	if c != '[' {
		return j.object(&list{}, at, 0)
	}
	var array list
	if err := j.items(&array, at, 0); err != nil {
		return err
	}
	return array.finish(j.b, metav1.TypeMeta{})
}

// object reads one object, which may be a List. Within is the list that it stands in.
func (j *jsonValue) object(within *list, at place, depth int) error {
	if depth > maxDepth {
		return &InputError{Where: at.String(), Problem: fmt.Sprintf("Lists stand in Lists more than %d deep", maxDepth)}
	}
	if c, err := j.s.skipSpace(); err != nil {
		return endOfInput(err, at)
	} else if c != '{' {
		return noObject(at)
	}
	j.s.discard(1)
	o := objectReader{j: j, at: at, depth: depth, buf: append(j.buffers[depth][:0], '{')}
	err := o.fields()
	j.buffers[depth] = o.buf
	if err != nil {
		return err
	}
	if o.list != nil {
		return o.endList()
	}
	if (o.meta.Kind == "" || o.meta.APIVersion == "") && !json.Valid(o.buf) {
		return &syntaxError{at, "this is neither JSON nor YAML"}
	}
	if err := within.take(j.b, o.buf, o.meta, at); err != nil {
		return err
	}
	j.s.dropMark() // this is JSON: no second try as YAML
	return nil
}

// items reads an array of objects.
func (j *jsonValue) items(l *list, at place, depth int) error {
	j.s.discard(1)
	outer := at.item != 0
	for n := int32(1); ; n++ {
		c, err := j.s.skipSpace()
		if err != nil {
			return endOfInput(err, at)
		}
		switch {
		case c == ']' && n == 1:
			j.s.discard(1)
			return nil
		case c == ']' || c == ',':
			return &syntaxError{at, "the JSON has a comma too many"}
		}
		if !outer {
			at.item = n
		}
		if err := j.object(l, at, depth+1); err != nil {
			return err
		}
		if c, err = j.s.skipSpace(); err != nil {
			return endOfInput(err, at)
		}
		j.s.discard(1)
		if c == ']' {
			return nil
		}
		if c != ',' {
			return &syntaxError{at, fmt.Sprintf("the JSON has %q where a comma or ] belongs", c)}
		}
	}
}

// An objectReader reads the fields of one object. It keeps them as they are, apart from a List's items.
type objectReader struct {
	j     *jsonValue
	at    place
	depth int
	buf   []byte
	meta  metav1.TypeMeta
	list  *list
}

// fields reads up to the closing brace.
func (o *objectReader) fields() error {
	s := o.j.s
	for first := true; ; first = false {
		c, err := s.skipSpace()
		switch {
		case err != nil:
			return endOfInput(err, o.at)
		case c == '}':
			s.discard(1)
			o.buf = append(o.buf, '}')
			return nil
		case first:
		case c != ',':
			return &syntaxError{o.at, fmt.Sprintf("the JSON has %q where a comma or } belongs", c)}
		default:
			s.discard(1)
			o.buf = append(o.buf, ',')
			if c, err = s.skipSpace(); err != nil {
				return endOfInput(err, o.at)
			}
		}
		if c != '"' {
			return &syntaxError{o.at, fmt.Sprintf("the JSON has %q where a quoted name belongs", c)}
		}
		if err := o.field(); err != nil {
			return err
		}
		if len(o.buf) > maxObject {
			return tooLarge(o.at)
		}
	}
}

// field reads one name and its value.
func (o *objectReader) field() (err error) {
	s := o.j.s
	start := len(o.buf)
	if o.buf, err = s.value(o.buf, o.at); err != nil {
		return err
	}
	name := string(o.buf[start:])
	c, err := s.skipSpace()
	if err != nil {
		return endOfInput(err, o.at)
	}
	if c != ':' {
		return &syntaxError{o.at, fmt.Sprintf("the JSON has %q where a colon belongs", c)}
	}
	s.discard(1)
	o.buf = append(o.buf, ':')
	if c, err = s.skipSpace(); err != nil {
		return endOfInput(err, o.at)
	}
	if name == `"items"` && c == '[' && o.list == nil && (o.meta.Kind == "" || isList(o.meta.Kind)) {
		o.list = &list{item: itemOf(o.meta)}
		o.buf = append(o.buf, "[]"...)
		return o.j.items(o.list, o.at, o.depth)
	}
	start = len(o.buf)
	if o.buf, err = s.value(o.buf, o.at); err != nil {
		return err
	}
	switch name {
	case `"kind"`:
		_ = json.Unmarshal(o.buf[start:], &o.meta.Kind)
	case `"apiVersion"`:
		_ = json.Unmarshal(o.buf[start:], &o.meta.APIVersion)
	}
	return nil
}

// endList checks what surrounds the items, and takes those that waited for it.
func (o *objectReader) endList() error {
	var head listHead
	if err := json.Unmarshal(o.buf, &head); err != nil {
		return &syntaxError{o.at, fmt.Sprintf("the JSON is broken: %v", err)}
	}
	return o.list.end(o.j.b, head)
}

// A listHead is a List without its items.
type listHead struct {
	metav1.TypeMeta
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
}

func isList(kind string) bool { return strings.HasSuffix(kind, "List") }

// itemOf returns what the items of a typed List are, PodList and the like; empty for v1 List.
func itemOf(meta metav1.TypeMeta) metav1.TypeMeta {
	kind := strings.TrimSuffix(meta.Kind, "List")
	if kind == "" || kind == meta.Kind || meta.APIVersion == "" {
		return metav1.TypeMeta{}
	}
	return metav1.TypeMeta{APIVersion: meta.APIVersion, Kind: kind}
}

// take reads one object of the list, or lets it wait for its kind.
func (l *list) take(b *builder, raw []byte, meta metav1.TypeMeta, at place) error {
	if meta.Kind == "" && meta.APIVersion == "" && at.item > 0 {
		if l.item.Kind == "" {
			l.waiting += len(raw)
			if l.waiting > maxPending {
				return &InputError{
					Where: at.String(), Problem: "too many items without a kind of their own stand before the List's kind",
					Advice: "pass what kubectl get -o json prints",
				}
			}
			l.pending = append(l.pending, pendingItem{append([]byte(nil), raw...), at})
			return nil
		}
		meta = l.item
	}
	return b.add(raw, meta, at)
}

// end is called behind the last item with what the List says about itself. A typed List makes its kind known even where
// it is empty; one that breaks off at a page makes it known in part.
func (l *list) end(b *builder, head listHead) error {
	b.read++
	l.item = itemOf(head.TypeMeta)
	if l.item.Kind != "" {
		kind := schema.FromAPIVersionAndKind(l.item.APIVersion, l.item.Kind).GroupKind()
		if !passingKinds[kind] && b.shelf(kind) != nil && head.Metadata.Continue != "" {
			b.shelf(kind).partial = true
			b.notice(fmt.Sprintf("a %sList is only one page of several: what is not in it may exist all the same", l.item.Kind))
		}
	}
	return l.finish(b, l.item)
}

func (l *list) finish(b *builder, item metav1.TypeMeta) error {
	for _, p := range l.pending {
		if err := b.add(p.raw, item, p.at); err != nil {
			return err
		}
	}
	l.pending = nil
	return nil
}

func noObject(at place) error {
	return &InputError{
		Where: at.String(), Problem: "this is no Kubernetes object: it has neither apiVersion nor kind",
		Advice: "pass what kubectl get -o yaml (or -o json) prints",
	}
}
