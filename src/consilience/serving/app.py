"""The application: the routes of the Open Inference Protocol v2, of plain JSON, and of metrics."""

# FastAPI reads the annotations of the routes; as strings it would not find what is imported within the function.
import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

from consilience.core.errors import ConsilienceError, InputError
from consilience.serving.api_keys import Key
from consilience.serving.batching import Batcher, Job
from consilience.serving.gate import NOTES, Gate, refuse
from consilience.serving.inference import Asked, parse_rows, parse_tensors
from consilience.serving.model_store import ModelStore
from consilience.serving.prometheus import CONTENT_TYPE
from consilience.serving.received import Memory, received
from consilience.serving.refusals import Refusal
from consilience.serving.row_warnings import dispatching
from consilience.serving.served_model import ServedModel, check_version
from consilience.version import __version__

# A request, or an answer, that is larger is parsed, or written, in a thread, so that it does not delay others.
_LARGE_BODY, _LARGE_ANSWER = 64 * 1024, 5000
# Large requests that are parsed at the same time: their memory is a multiple of their size.
_PARSED_AT_ONCE = 2
_ADDRESSES = "GET /v1/models lists models; POST rows to /v1/models/NAME/predict, tensors to /v2/models/NAME/infer"


def create_app(
    store: ModelStore, keys: Callable[[], tuple[Key, ...]] = tuple, hosts: Collection[str] | None = None
) -> Gate:
    """Return the ASGI application that serves the models of a store.

    Args:
        store: The models.
        keys: Returns the API keys, one of which each request must carry; none: no key is needed.
        hosts: Names that the Host header may have; None: any.

    Raises:
        InputError: FastAPI is not installed.
    """
    try:
        from fastapi import FastAPI, Request, Response
        from fastapi.responses import JSONResponse
        from starlette.exceptions import HTTPException
    except ImportError as error:
        raise InputError("serve needs FastAPI and uvicorn: pip install 'consilience[serve]'") from error

    memory, parsing = Memory(store.settings.memory_bytes), asyncio.Semaphore(_PARSED_AT_ONCE)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        with dispatching():
            yield

    app = FastAPI(
        title="consilience",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # a redirect would name whatever host the request names
    )

    @app.exception_handler(HTTPException)
    async def of_routing(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        reason = str(error.detail)
        if error.status_code == 404:
            reason = f"there is no such address: {_ADDRESSES}"
        elif error.status_code == 405:
            allowed = next((value for name, value in headers.items() if name.lower() == "allow"), "another method")
            reason = f"{request.method[:20]} is not allowed at this address, which takes {allowed}: {_ADDRESSES}"
        return JSONResponse({"error": reason}, error.status_code, headers)

    @app.exception_handler(ConsilienceError)
    @app.exception_handler(Exception)
    async def of_error(request: Request, error: Exception) -> Response:
        refusal = refuse(request.scope, error)
        return Response(refusal.body, refusal.status, refusal.all_headers)

    def arrived(request: Request, route: str, name: str, version: str | None) -> Batcher:
        request.scope[NOTES] |= {"route": route, "model": name[:100]}
        while True:
            batcher = store.batcher(name)
            check_version(batcher.model, version)
            if batcher.arrive():
                request.scope[NOTES]["version"] = batcher.model.version
                return batcher

    async def answer(
        request: Request, route: str, name: str, version: str | None, parse: Callable[[bytes, ServedModel], Asked]
    ) -> Response:
        batcher = arrived(request, route, name, version)
        submitted = False
        try:
            deadline = time.monotonic() + store.settings.timeout
            async with received(request, store.settings, memory) as body:
                if len(body) <= _LARGE_BODY:
                    asked = parse(body, batcher.model)
                else:
                    async with parsing:
                        asked = await asyncio.to_thread(parse, body, batcher.model)
                del body
                request.scope[NOTES]["rows"] = asked.rows
                job = Job(asked.read, asked.rows, deadline)
                submitted = True
                batcher.submit(job)
                try:
                    async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                        found = await asyncio.wrap_future(job.answer)
                except TimeoutError as error:
                    seconds = f"{store.settings.timeout:g} s"
                    raise Refusal(504, f"the model did not answer within {seconds}") from error
        finally:
            if not submitted:
                batcher.leave()
        values = len(found) if found.classes is None else len(found) * len(found.classes)
        write = asked.respond
        content, headers = write(found) if values <= _LARGE_ANSWER else await asyncio.to_thread(write, found)
        return Response(content, headers=headers)

    @app.get("/v2")
    async def server_metadata() -> dict[str, Any]:
        return {"name": "consilience", "version": __version__, "extensions": ["binary_tensor_data"]}

    @app.get("/v2/health/live")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @app.get("/v2/health/ready")
    async def ready() -> dict[str, bool]:
        return {"ready": True}

    @app.get("/v2/models/{name}/ready")
    @app.get("/v2/models/{name}/versions/{version}/ready")
    async def model_ready(request: Request, name: str, version: str | None = None) -> dict[str, Any]:
        request.scope[NOTES]["route"] = "ready"
        check_version(store.batcher(name).model, version)
        return {"name": name, "ready": True}

    @app.get("/v2/models/{name}")
    @app.get("/v2/models/{name}/versions/{version}")
    @app.get("/v1/models/{name}")
    async def model_metadata(request: Request, name: str, version: str | None = None) -> dict[str, Any]:
        request.scope[NOTES]["route"] = "metadata"
        model = store.batcher(name).model
        check_version(model, version)
        return model.metadata()

    @app.post("/v2/models/{name}/infer")
    @app.post("/v2/models/{name}/versions/{version}/infer")
    async def infer(request: Request, name: str, version: str | None = None) -> Response:
        def parse(body: bytes, model: ServedModel) -> Asked:
            return parse_tensors(body, request.headers, model, store.settings)

        return await answer(request, "infer", name, version, parse)

    @app.post("/v1/models/{name}/predict")
    @app.post("/v1/models/{name}/versions/{version}/predict")
    async def predict(request: Request, name: str, version: str | None = None) -> Response:
        def parse(body: bytes, model: ServedModel) -> Asked:
            return parse_rows(body, model, store.settings)

        return await answer(request, "predict", name, version, parse)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"models": [{"name": name, "version": store.batcher(name).model.version} for name in store.names]}

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        request.scope[NOTES]["route"] = "metrics"
        return Response(store.text_of_metrics(), headers={"content-type": CONTENT_TYPE})

    return Gate(app, store.metrics, keys, hosts)
