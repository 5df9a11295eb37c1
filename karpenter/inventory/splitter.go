package inventory

import (
	"bytes"
	"encoding/json"
)

// A splitter takes the items of a large YAML List one by one. It looks at nothing but indentation, which holds for what
// kubectl and every other serializer print: in block style the text of an item, block scalars included, stands further in
// than its dash.
type splitter struct {
	l  *loader
	at place
	// around is the text of the List without its items.
	around []byte
	list   list
	state  splitState
	// dash is the indentation of the items' dashes.
	dash int
	// item is the item being read, without its dash; it begins at itemLine. next is the line to come.
	item           []byte
	itemLine, next int32
}

type splitState int

const (
	beforeItems splitState = iota
	atItems                // behind "items:", no item yet
	inItems
	behindItems
)

// line takes the next line.
func (p *splitter) line(line []byte) error {
	p.next++
	text := bytes.TrimLeft(line, " ")
	indent := len(line) - len(text)
	dash := len(text) > 0 && text[0] == '-' && (len(text) == 1 || isSpace(text[1]))
	blank := len(bytes.TrimSpace(text)) == 0 || text[0] == '#'
	switch {
	// 1. Outside the items.
	case p.state == beforeItems && isItemsKey(line):
		p.state = atItems
	case p.state == beforeItems, p.state == behindItems:
		return p.keepAround(line)
	// 2. Lines that end nothing.
	case blank && p.state == atItems:
	case blank:
		p.item = append(p.item, line...)
	// 3. The next item, or the first.
	case dash && (p.state == atItems || indent == p.dash):
		if err := p.endItem(); err != nil {
			return err
		}
		p.state, p.dash, p.itemLine = inItems, indent, p.next-1
		p.item = append(append(p.item, line...)[:indent], ' ')
		p.item = append(p.item, text[1:]...)
		p.at.item++
	// 4. Within one.
	case p.state == inItems && indent > p.dash:
		p.item = append(p.item, line...)
	// 5. The List goes on behind its items, or "items:" held none.
	default:
		p.state = behindItems
		if err := p.endItem(); err != nil {
			return err
		}
		return p.keepAround(line)
	}
	if len(p.item) > maxObject {
		return tooLarge(p.at)
	}
	return nil
}

// isItemsKey recognises the line that the items follow; it stands at the margin.
func isItemsKey(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("items:"))
	rest = bytes.TrimSpace(rest)
	return ok && (len(rest) == 0 || rest[0] == '#')
}

func (p *splitter) keepAround(line []byte) error {
	p.around = append(p.around, line...)
	if len(p.around) > maxObject {
		return tooLarge(p.l.at)
	}
	return nil
}

// endItem reads the item that is complete now.
func (p *splitter) endItem() error {
	text := p.item
	p.item = p.item[:0]
	if len(text) == 0 {
		return nil
	}
	return p.l.convert(text, p.at, p.itemLine, func(j *jsonValue, at place) error { return j.object(&p.list, at, 1) })
}

// end reads what is left: the last item, then the List without its items, or the document where there were none.
func (p *splitter) end() error {
	if err := p.endItem(); err != nil {
		return err
	}
	if p.state == beforeItems {
		return p.l.convert(p.around, p.l.at, p.l.at.line, (*jsonValue).read)
	}
	return p.l.convert(p.around, p.l.at, p.l.at.line, func(j *jsonValue, at place) error {
		var head listHead
		if err := json.Unmarshal(j.s.buf, &head); err != nil {
			return &syntaxError{at, "this is no List: " + err.Error()}
		}
		return p.list.end(p.l.b, head)
	})
}
