"""The manifests for Kubernetes are valid, and fit together."""

import re
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="make field installs it")

pytestmark = pytest.mark.field

FOLDER = Path(__file__).parents[2] / "docs/kubernetes"
#: The oldest version that today's clusters still have, and a newer one.
VERSIONS = ["1.31", "1.34"]


def manifests():
    return [
        pytest.param(manifest, id=f"{file.stem}-{manifest['kind']}")
        for file in sorted(FOLDER.glob("*.yaml"))
        for manifest in yaml.safe_load_all(file.read_text())
    ]


def of_kind(file, kind):
    (found,) = [m for m in yaml.safe_load_all((FOLDER / file).read_text()) if m["kind"] == kind]
    return found


@pytest.fixture
def settings():
    """Spark's settings in the query's manifest."""
    text = of_kind("query.yaml", "ConfigMap")["data"]["spark-defaults.conf"]
    return dict(line.split() for line in text.splitlines())


@pytest.fixture
def driver():
    return of_kind("query.yaml", "Deployment")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", manifests())
def test_a_manifest_has_the_form_of_its_kind(manifest, version):
    validate = pytest.importorskip("kubernetes_validate", reason="make field installs it")
    # The schema check is strict: it refuses unknown fields.
    validate.validate(manifest, version, strict=True)


def test_a_field_that_kubernetes_does_not_have_is_refused():
    validate = pytest.importorskip("kubernetes_validate", reason="make field installs it")
    service = of_kind("query.yaml", "Service")
    service["spec"]["selectors"] = service["spec"].pop("selector")
    with pytest.raises(validate.ValidationError, match="selectors"):
        validate.validate(service, VERSIONS[0], strict=True)


def test_executors_find_the_driver_by_its_service(settings, driver):
    service = of_kind("query.yaml", "Service")
    assert settings["spark.driver.host"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == driver["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == driver["spec"]["selector"]["matchLabels"]
    ports = {str(port["port"]) for port in service["spec"]["ports"]}
    assert {settings["spark.driver.port"], settings["spark.driver.blockManager.port"]} <= ports


def test_the_driver_may_do_what_it_does(driver):
    account = of_kind("access.yaml", "ServiceAccount")["metadata"]["name"]
    assert driver["spec"]["template"]["spec"]["serviceAccountName"] == account
    binding = of_kind("access.yaml", "RoleBinding")
    assert [subject["name"] for subject in binding["subjects"]] == [account]
    assert binding["roleRef"]["name"] == of_kind("access.yaml", "Role")["metadata"]["name"]


def test_there_is_one_driver_at_a_time_and_one_image(settings, driver):
    assert (driver["spec"]["replicas"], driver["spec"]["strategy"]["type"]) == (1, "Recreate")
    (container,) = driver["spec"]["template"]["spec"]["containers"]
    assert container["image"] == settings["spark.kubernetes.container.image"]


def test_an_executor_has_a_disk_that_spark_takes(settings, driver):
    pod = of_kind("executor.yaml", "Pod")["spec"]
    (mount,) = pod["containers"][0]["volumeMounts"]
    assert mount["name"] in {volume["name"] for volume in pod["volumes"]}
    assert mount["name"].startswith("spark-local-dir-")
    # The driver reads the template where the settings say it is.
    (volume,) = driver["spec"]["template"]["spec"]["volumes"]
    sources = {source["configMap"]["name"] for source in volume["projected"]["sources"]}
    assert of_kind("query.yaml", "ConfigMap")["metadata"]["name"] in sources
    (mounted,) = driver["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    template = settings["spark.kubernetes.executor.podTemplateFile"]
    assert template == f"{mounted['mountPath']}/executor.yaml"
    assert (
        f"configmap {(sources - {'orders'}).pop()} --from-file=executor.yaml"
        in (FOLDER.parent / "deploy.md").read_text()
    )


def test_the_image_has_a_spark_that_binshift_runs_on_and_the_query(driver):
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    assert {step for step, _ in steps} <= {"FROM", "USER", "COPY", "RUN"}
    version = re.fullmatch(r"spark:(\d+\.\d+)\.\d+-python3", dict(steps)["FROM"])
    assert version is not None
    assert version.group(1) == "4.3"
    # The final user of the image is not root.
    assert [user for step, user in steps if step == "USER"][-1] == "spark"
    (query,) = [what.split()[1] for step, what in steps if step == "COPY" and what.startswith("app.py")]
    assert query in driver["spec"]["template"]["spec"]["containers"][0]["args"]
