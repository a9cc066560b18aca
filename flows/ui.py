"""Prefect, a worker for its deployments, and MLflow, on this machine until interrupted: python -m flows.ui."""

import argparse
import subprocess
import sys
import time

from flows import deploy, server
from tasks import tracking


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m flows.ui", description=__doc__)
    parser.add_argument("--prefect-port", type=int, default=4200)
    parser.add_argument("--mlflow-port", type=int, default=5000)
    args = parser.parse_args()
    children = [server.serve(args.prefect_port)]
    try:
        server.wait(f"http://127.0.0.1:{args.prefect_port}/api", server.SHARED, children[0])
        with server.at_hand() as url:
            deploy.deploy()
            children.append(_start("prefect", "worker", "start", "--pool", deploy.POOL))
            children.append(
                _start("mlflow", "ui", "--backend-store-uri", tracking.ready(), "--port", str(args.mlflow_port))
            )
            print(
                f"Prefect: {url.removesuffix('/api')}\nMLflow:  http://127.0.0.1:{args.mlflow_port}\nCtrl-C ends both."
            )
            while all(child.poll() is None for child in children):
                time.sleep(0.5)
    except KeyboardInterrupt:
        pass
    finally:
        server.forget(server.SHARED)
        for child in reversed(children):
            child.terminate()
        for child in children:
            child.wait()


def _start(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", module, *arguments])


if __name__ == "__main__":
    main()
