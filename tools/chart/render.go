// Renders deploy/helm/pelton as Helm does, where there is no Helm: its templates are Go's text/template with the
// functions of sprig, both of which Debian has. `tools/manifests` builds and asks it.
//
// usage: render CHART <requests >answers
// A request is a line of JSON: {"name", "namespace", "service", "values": merged with the chart's own}. Its answer is another one:
// {"files": {"templates/x.yaml": text}} or {"error": text}. A key that no value has is an error here, and nothing to Helm.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

type request struct {
	Name      string                 `json:"name"`
	Namespace string                 `json:"namespace"`
	Service   string                 `json:"service"`
	Values    map[string]interface{} `json:"values"`
}

type answer struct {
	Files map[string]string `json:"files,omitempty"`
	Error string            `json:"error,omitempty"`
}

func toYaml(value interface{}) (string, error) {
	text, err := yaml.Marshal(value)
	return strings.TrimSuffix(string(text), "\n"), err
}

func fromYaml(text string) (map[string]interface{}, error) {
	value := map[string]interface{}{}
	err := yaml.Unmarshal([]byte(text), &value)
	return value, err
}

func required(message string, value interface{}) (interface{}, error) {
	if value == nil || value == "" {
		return nil, fmt.Errorf("%s", message)
	}
	return value, nil
}

func load(chart string) (*template.Template, []string, error) {
	all := template.New("chart").Option("missingkey=error")
	functions := sprig.TxtFuncMap()
	// Not Helm's: what an installation is made of is its values.
	delete(functions, "env")
	delete(functions, "expandenv")
	functions["toYaml"] = toYaml
	functions["fromYaml"] = fromYaml
	functions["required"] = required
	functions["include"] = func(name string, data interface{}) (string, error) {
		var out strings.Builder
		err := all.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	all.Funcs(functions)
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	if err != nil {
		return nil, nil, err
	}
	names := []string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		name := "templates/" + filepath.Base(path)
		if _, err := all.New(name).Parse(string(text)); err != nil {
			return nil, nil, err
		}
		if !strings.HasPrefix(filepath.Base(path), "_") {
			names = append(names, name)
		}
	}
	return all, names, nil
}

func about(chart string) (map[string]interface{}, error) {
	text, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	if err != nil {
		return nil, err
	}
	keys, err := fromYaml(string(text))
	if err != nil {
		return nil, err
	}
	upper := map[string]interface{}{}
	for key, value := range keys {
		upper[strings.ToUpper(key[:1])+key[1:]] = value
	}
	return upper, nil
}

func render(all *template.Template, names []string, chart map[string]interface{}, asked request) answer {
	data := map[string]interface{}{
		"Values":  asked.Values,
		"Chart":   chart,
		"Release": map[string]interface{}{"Name": asked.Name, "Namespace": asked.Namespace, "Service": asked.Service},
	}
	files := map[string]string{}
	for _, name := range names {
		var out strings.Builder
		if err := all.ExecuteTemplate(&out, name, data); err != nil {
			return answer{Error: err.Error()}
		}
		files[name] = out.String()
	}
	return answer{Files: files}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: render CHART <requests >answers")
	}
	all, names, err := load(os.Args[1])
	if err != nil {
		return err
	}
	chart, err := about(os.Args[1])
	if err != nil {
		return err
	}
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	out := json.NewEncoder(os.Stdout)
	for in.More() {
		var asked request
		if err := in.Decode(&asked); err != nil {
			return err
		}
		if err := out.Encode(render(all, names, chart, asked)); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}
