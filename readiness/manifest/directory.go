package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/readiness"
)

// maxLength is the size in bytes from which on a file is refused (maxConfigLength of pkg/kubelet/config/common.go).
const maxLength = 10 << 20

// contentHash matches what a kubelet makes of a manifest that sets no metadata.uid: 128 bits in hex (applyDefaults of
// pkg/kubelet/config/common.go).
var contentHash = regexp.MustCompile("^[0-9a-f]{32}$")

// Source is how the expected set names this source.
const Source = "Manifests"

// Listing is what a manifest path holds.
type Listing struct {
	Pods    []readiness.StaticPod
	Ignored []readiness.IgnoredFile
}

// Read reads what the kubelet of node would read at path, a directory or a single file (listConfig of
// pkg/kubelet/config/file.go). The error tells that there is no answer: the path is not there (fs.ErrNotExist), cannot be
// read, or is a single file without a pod, over which a kubelet never becomes ready.
func Read(path, node string) (Listing, error) {
	path = strings.TrimRight(path, string(os.PathSeparator))
	if path == "" {
		path = string(os.PathSeparator)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return Listing{}, fmt.Errorf("reading static pods: %w", err)
	case info.IsDir():
		return readDirectory(path, node)
	case !info.Mode().IsRegular():
		return Listing{}, fmt.Errorf("reading static pods: %s is neither a directory nor a file", path)
	}
	pod, err := readFile(path, node)
	if err != nil {
		return Listing{}, fmt.Errorf("reading the static pod %s, over which a kubelet does not become ready: %w", path, err)
	}
	return Listing{Pods: []readiness.StaticPod{describe(pod)}}, nil
}

// readDirectory reads the files of a directory in lexical order: of two pods of one name the last stays. Unlike a kubelet,
// which finds no files in a directory that it may not list, it reports that.
func readDirectory(path, node string) (Listing, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return Listing{}, fmt.Errorf("reading static pods: %w", err)
	}
	var listing Listing
	byKey := map[string]int{} // index into listing.Pods
	fileOf := map[string]string{}
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		file := filepath.Join(path, name)
		info, err := os.Stat(file)
		switch {
		case err != nil:
			listing.ignore(name, bare(err))
			continue
		case info.IsDir():
			continue
		case !info.Mode().IsRegular():
			listing.ignore(name, errors.New("neither a file nor a directory"))
			continue
		}
		pod, err := readFile(file, node)
		if err != nil {
			listing.ignore(name, bare(err))
			continue
		}
		static := describe(pod)
		if at, twice := byKey[static.Key()]; twice {
			listing.ignore(fileOf[static.Key()], fmt.Errorf("%s makes a pod of the same name and comes later", name))
			listing.Pods[at] = static
		} else {
			byKey[static.Key()] = len(listing.Pods)
			listing.Pods = append(listing.Pods, static)
		}
		fileOf[static.Key()] = name
	}
	return listing, nil
}

func (l *Listing) ignore(file string, why error) {
	l.Ignored = append(l.Ignored, readiness.IgnoredFile{File: file, Why: why.Error()})
}

// describe keeps of a pod what the expected set has. Only where the manifest sets metadata.uid is the hash known: it is
// that UID. One that looks as if it were made of the content is left out: readiness would take a mirror that has it for one
// of this content, though it stays through every edit, and would not compare requests.
func describe(pod *corev1.Pod) readiness.StaticPod {
	hash := string(pod.UID)
	if contentHash.MatchString(hash) {
		hash = ""
	}
	return readiness.NewStaticPod(pod, hash)
}

// readFile opens without waiting, should the file have become a FIFO since it was looked at.
func readFile(path, node string) (*corev1.Pod, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("no longer a file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxLength))
	if err != nil {
		return nil, err
	}
	if len(data) == maxLength {
		return nil, fmt.Errorf("larger than %d bytes", maxLength-1)
	}
	return Decode(data, node)
}

// bare takes the path out of an error that is shown beside it anyway.
func bare(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}
