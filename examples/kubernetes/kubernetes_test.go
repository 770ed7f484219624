package kubernetes_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"worker": func() { worker.Main(builtin.All()) }})
}

func TestLint(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{Dir: "testdata", Setup: func(e *testscript.Env) error {
		content, err := os.ReadFile("worker.yaml")
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(e.Cd, "worker.yaml"), content, 0o600)
	}})
}

// deployment is what has to fit the worker's file.
type deployment struct {
	Spec struct {
		Template struct {
			Metadata struct {
				Annotations map[string]string
			}
			Spec struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []struct {
					Args []string
					Env  []struct {
						Name      string
						ValueFrom struct {
							FieldRef struct {
								FieldPath string `yaml:"fieldPath"`
							} `yaml:"fieldRef"`
						} `yaml:"valueFrom"`
					}
					Ports []struct {
						Name          string
						ContainerPort string `yaml:"containerPort"`
					}
					Liveness  probe `yaml:"livenessProbe"`
					Readiness probe `yaml:"readinessProbe"`
				}
			}
		}
	}
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

func TestDeploymentFitsTheFile(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load(config.Options{Files: []string{"worker.yaml"}, LookupEnv: func(string) (string, bool) { return "watermill-kafka://kafka:9092", true }})
	require.NoError(t, err)
	content, err := os.ReadFile("deployment.yaml")
	require.NoError(t, err)
	var d deployment
	require.NoError(t, yaml.Unmarshal(content, &d))

	pod := d.Spec.Template.Spec
	require.Len(t, pod.Containers, 1)
	c := pod.Containers[0]
	host, port, err := net.SplitHostPort(cfg.HTTP.Listen)
	require.NoError(t, err)
	require.Equal(t, "0.0.0.0", host)
	require.Equal(t, port, c.Ports[0].ContainerPort)
	require.Equal(t, port, d.Spec.Template.Metadata.Annotations["prometheus.io/port"])
	require.Equal(t, "/livez", c.Liveness.HTTPGet.Path)
	require.Equal(t, "/readyz", c.Readiness.HTTPGet.Path)
	require.Equal(t, c.Ports[0].Name, c.Liveness.HTTPGet.Port)
	require.Equal(t, c.Ports[0].Name, c.Readiness.HTTPGet.Port)
	require.GreaterOrEqual(t, time.Duration(pod.Grace)*time.Second, cfg.DrainTimeout.Std()+15*time.Second)
	require.Equal(t, "LEAT_INSTANCE", c.Env[0].Name)
	require.Equal(t, "metadata.name", c.Env[0].ValueFrom.FieldRef.FieldPath)
	require.Equal(t, []string{"run", "-c", "/etc/leat/worker.yaml"}, c.Args)
}
