package tui

// pageRows is how many lines a page has, between the tabs and the footer.
func (m *model) pageRows() int {
	l := m.layout()
	rows := 1 + l.rows + l.strip
	if l.summary {
		rows++
	}
	return rows
}

// drawPage draws the help, or all there is to know of the cursor's object.
func (m *model) drawPage() []string {
	lines := m.pageLines()
	rows := m.pageRows()
	top := max(0, min(m.page.top, len(lines)-rows))
	return exactly(lines[top:min(len(lines), top+rows)], rows)
}

// pageLines are all of the page's lines.
func (m *model) pageLines() []string {
	if m.page.of == "" {
		return m.helpLines()
	}
	title, fields := m.view().page(m.moment())
	lines := []string{"  " + m.paint(strong, cut(clean(title), m.width-gutter, m.tail))}
	const label = 22
	for _, f := range fields {
		if f.value == "" {
			continue
		}
		for i, line := range wrap(clean(f.value), m.width-label-gutter) {
			name := ""
			if i == 0 {
				name = f.name
			}
			lines = append(lines, "  "+m.paint(quiet, fit(name, label, false, m.tail))+line)
		}
	}
	return lines
}

// helpLines are the key table and the glyphs.
func (m *model) helpLines() []string {
	var lines []string
	const label = 12
	add := func(name, means string) {
		for i, line := range wrap(means, m.width-label-2*gutter) {
			if i > 0 {
				name = ""
			}
			lines = append(lines, "    "+fit(name, label, false, m.tail)+line)
		}
	}
	for _, group := range keymap {
		lines = append(lines, "  "+m.paint(strong, group.title))
		for _, b := range group.bindings {
			add(b.Help().Key, b.Help().Desc)
		}
	}
	lines = append(lines, "  "+m.paint(strong, "Glyphs"))
	for _, s := range legend {
		add(s.glyph, s.means)
	}
	return lines
}
