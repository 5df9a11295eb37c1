package stream

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// docs/stream.md has every field of every record, under a heading of its type, and no other.
func TestEveryFieldIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/stream.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(text), "\n### ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		body, _, _ = strings.Cut(body, "\n## ")
		sections[title] = body
	}
	for _, typ := range structs(reflect.TypeFor[Record](), map[reflect.Type]bool{}) {
		section, ok := sections[typ.Name()]
		if !ok {
			t.Errorf("docs/stream.md has no section %q", typ.Name())
			continue
		}
		fields := fieldNames(typ)
		for name := range fields {
			if !strings.Contains(section, "\n| `"+name+"` |") {
				t.Errorf("section %s of docs/stream.md lacks the field `%s`", typ.Name(), name)
			}
		}
		for _, row := range strings.Split(section, "\n| `")[1:] {
			if name, _, _ := strings.Cut(row, "`"); !fields[name] {
				t.Errorf("section %s of docs/stream.md has a field `%s` that there is not", typ.Name(), name)
			}
		}
	}
}

// Every text of every row is made printable: a new field is not forgotten.
func TestEveryTextIsTidied(t *testing.T) {
	const hostile = "\x1b]0;pwned\x07\u202e\x7f\u0085" + "\xff"
	record := &Record{}
	fill(reflect.ValueOf(record).Elem(), hostile)
	record.tidy()
	walk(reflect.ValueOf(record).Elem(), "Record", func(path, text string) {
		if text == "" || strings.ContainsAny(text, "\x1b\x07\u202e\x7f\u0085") {
			t.Errorf("%s is %q", path, text)
		}
	})
}

// structs returns the types of records' parts; embedded ones are part of what embeds them.
func structs(t reflect.Type, seen map[reflect.Type]bool) []reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[Record]().PkgPath() || seen[t] {
		return nil
	}
	seen[t] = true
	found := []reflect.Type{t}
	for i := range t.NumField() {
		found = append(found, structs(t.Field(i).Type, seen)...)
	}
	return found
}

func fieldNames(t reflect.Type) map[string]bool {
	names := map[string]bool{}
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !field.Anonymous {
			names[name] = true
		}
	}
	return names
}

// fill puts the text wherever one can be, one element in each list and map.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), text)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(text), reflect.ValueOf(1))
	case reflect.Struct:
		if v.Type().PkgPath() == "time" {
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), text)
		}
	}
}

// walk visits all texts; Kind of the record is the program's own choice.
func walk(v reflect.Value, path string, visit func(path, text string)) {
	switch v.Kind() {
	case reflect.String:
		if path != "Record.Kind" {
			visit(path, v.String())
		}
	case reflect.Pointer:
		walk(v.Elem(), path, visit)
	case reflect.Slice:
		for i := range v.Len() {
			walk(v.Index(i), path, visit)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			visit(path, key.String())
		}
	case reflect.Struct:
		if v.Type().PkgPath() == "time" {
			return
		}
		for i := range v.NumField() {
			walk(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
	}
}
