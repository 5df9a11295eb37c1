package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rollcall-dev/rollcall/internal/domain"
	"github.com/rollcall-dev/rollcall/internal/livecluster"
	"github.com/rollcall-dev/rollcall/internal/liverollcall"
	"github.com/rollcall-dev/rollcall/karpenter"
	"github.com/rollcall-dev/rollcall/karpenter/fate"
)

const interruptionTaint = "spot-interruption"

// interruption plays the main job on a cluster without nodes, and returns every outcome that was not as it should be.
func interruption(ctx context.Context, cluster *livecluster.Cluster, programs *liverollcall.Binaries, say *narrator) error {
	client, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		return err
	}
	if err := furnish(ctx, cluster, client, say); err != nil {
		return err
	}
	say.step("starting rollcall-controller")
	controller, err := programs.Controller(ctx, cluster)
	if err != nil {
		return err
	}
	defer controller.Stop()

	say.step("the cloud takes %s back: taint %s=true:NoSchedule", spotNode, interruptionTaint)
	marked, took, err := interrupt(ctx, client)
	if err != nil {
		return controller.Explain(err)
	}
	say.step("every pod that will be lost is marked, %d ms after the taint", took.Milliseconds())
	verdicts, err := verdictsOf(ctx, cluster, programs)
	if err != nil {
		return err
	}
	problems := judge(say, marked, verdicts)
	say.step("and in words, kubectl rollcall check %s --show-all:", spotNode)
	table, err := programs.Ask(ctx, cluster, "check", spotNode, "--show-all")
	if err != nil {
		return err
	}
	say.show(table)
	problems = append(problems, judgeEvents(ctx, client, say)...)

	say.step("the node is healthy again: the taint goes")
	if err := setTaint(ctx, client, false); err != nil {
		return err
	}
	if err := eventually(ctx, "the marks to go", func(ctx context.Context) (bool, error) {
		pods, err := castPods(ctx, client)
		return err == nil && countMarked(pods) == 0, nil
	}); err != nil {
		return controller.Explain(err)
	}
	say.step("no pod is marked any more")
	return wrong(problems)
}

// interrupt taints the spot node and waits until all that will be lost is marked. It returns the pods as they are then,
// and the time from the taint's answer to the last mark seen.
func interrupt(ctx context.Context, client kubernetes.Interface) ([]corev1.Pod, time.Duration, error) {
	if err := setTaint(ctx, client, true); err != nil {
		return nil, 0, err
	}
	tainted := time.Now()
	want := 0
	for _, a := range cast {
		if a.verdict == fate.Lost {
			want++
		}
	}
	var pods []corev1.Pod
	err := eventually(ctx, "the marks", func(ctx context.Context) (bool, error) {
		var err error
		pods, err = castPods(ctx, client)
		return err == nil && countMarked(pods) >= want, nil
	})
	return pods, time.Since(tainted), err
}

func countMarked(pods []corev1.Pod) int {
	n := 0
	for _, pod := range pods {
		if pod.Annotations[domain.AtRisk] != "" {
			n++
		}
	}
	return n
}

func setTaint(ctx context.Context, client kubernetes.Interface, on bool) error {
	taints := []corev1.Taint{}
	if on {
		taints = append(taints, corev1.Taint{Key: interruptionTaint, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": taints}})
	if err != nil {
		return err
	}
	if _, err := client.CoreV1().Nodes().Patch(ctx, spotNode, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("changing the taints of %s: %w", spotNode, err)
	}
	return nil
}

// answer is what 'kubectl rollcall check -o json' says of one pod.
type answer struct {
	Namespace, Name, Message string
	Verdict                  fate.Verdict
	Reason                   fate.Reason
}

// verdictsOf asks 'kubectl rollcall check' about the spot node, by namespace/name.
func verdictsOf(ctx context.Context, cluster *livecluster.Cluster, programs *liverollcall.Binaries) (map[string]answer, error) {
	out, err := programs.Ask(ctx, cluster, "check", spotNode, "-o", "json")
	if err != nil {
		return nil, err
	}
	var report struct{ Nodes []struct{ Pods []answer } }
	if err := json.Unmarshal(out, &report); err != nil || len(report.Nodes) != 1 {
		return nil, fmt.Errorf("kubectl rollcall check answered %q: %w", out, err)
	}
	verdicts := map[string]answer{}
	for _, a := range report.Nodes[0].Pods {
		verdicts[a.Namespace+"/"+a.Name] = a
	}
	return verdicts, nil
}

// judge shows each pod's mark and verdict beside what it is, and returns what differs from what has to be.
func judge(say *narrator, pods []corev1.Pod, verdicts map[string]answer) (problems []string) {
	var rows [][]string
	for i, pod := range pods {
		name, want := pod.Namespace+"/"+pod.Name, cast[i]
		got := verdicts[name]
		mark, marked := pod.Annotations[domain.AtRisk]
		rows = append(rows, []string{name, want.what, yes(marked), string(got.Verdict), string(got.Reason)})
		if got.Verdict != want.verdict || got.Reason != want.reason {
			problems = append(problems, fmt.Sprintf("%s: verdict %s (%s), want %s (%s)", name, got.Verdict, got.Reason, want.verdict, want.reason))
		}
		if marked != (want.verdict == fate.Lost) {
			problems = append(problems, fmt.Sprintf("%s: marked %t, want %t", name, marked, !marked))
			continue
		}
		if !marked {
			continue
		}
		m, ok := karpenter.ParseMarker(mark)
		if !ok || m.Verdict != want.verdict || m.Reason != want.reason || m.Node != spotNode || m.Cause != interruptionTaint {
			problems = append(problems, fmt.Sprintf("%s: marker %s", name, mark))
		}
	}
	say.table([]string{"POD", "WHAT IT IS", "MARKED", "VERDICT", "REASON"}, rows)
	return problems
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}

// judgeEvents waits for one Event on each pod that will be lost and one on the Node.
func judgeEvents(ctx context.Context, client kubernetes.Interface, say *narrator) []string {
	var onPods, onNode []corev1.Event
	err := eventually(ctx, "the Events", func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "reason=" + karpenter.WillBeLost})
		if err != nil {
			return false, err
		}
		onPods, onNode = nil, nil
		for _, event := range list.Items {
			if event.InvolvedObject.Kind == "Node" {
				onNode = append(onNode, event)
			} else {
				onPods = append(onPods, event)
			}
		}
		return len(onPods) >= 3 && len(onNode) >= 1, nil
	})
	if err != nil || len(onPods) != 3 || len(onNode) != 1 {
		return []string{fmt.Sprintf("%d Events on pods and %d on nodes, want 3 and 1 (%v)", len(onPods), len(onNode), err)}
	}
	say.step("Events %s on 3 pods; on the Node: %s", karpenter.WillBeLost, onNode[0].Message)
	return nil
}
