"""/v1/images: disk images. Operators add and remove them, everybody sees them."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Query, Security
from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from controller.rest.dependencies import RegistryDep, ServicesDep
from controller.rest.idempotency_keys import IdempotencyDep
from controller.rest.middleware.bodies import BoundedRoute
from controller.rest.middleware.callers import AnyCaller, Operator, bearer
from controller.rest.pages.openapi import problem_responses
from controller.rest.problems.errors import MalformedBodyError, UnsupportedMediaTypeError
from controller.rest.redaction import redact_image, redact_page
from controller.rest.schemas.offers import ImageCopies, ImageInput, ImagesQuery, ImageUpload
from controller.rest.schemas.values import ImageReference, PageOf
from registry import Registry
from registry.db import Page, uuid7
from registry.images import Image, IncomingFile, NewImage, StoredFile, check_image_url

router = APIRouter(
    prefix="/images", tags=["images"], dependencies=[Security(bearer)], route_class=BoundedRoute
)
_ADAPTER: Final = TypeAdapter(Image)
BYTES_TYPE: Final = "application/octet-stream"
#: Received pieces are small; this many bytes are handed to the writing thread at once.
_WRITE_BYTES: Final = 1 << 20
_CONTENT: Final = {
    "requestBody": {
        "required": True,
        "description": "The image's file.",
        "content": {BYTES_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.get("", response_model=PageOf[Image])
def list_images(
    query: Annotated[ImagesQuery, Query()], caller: AnyCaller, registry: RegistryDep
) -> Page[Image]:
    """List images, every revision, by name."""
    page = registry.images.list(
        name=query.name,
        include_removed=query.include_removed,
        limit=query.limit,
        cursor=query.cursor,
    )
    return redact_page(page, redact_image, caller)


@router.get("/{reference}", response_model=Image, responses=problem_responses(404))
def show_image(reference: ImageReference, caller: AnyCaller, registry: RegistryDep) -> Image:
    """Show an image: ``NAME`` is its newest revision, ``NAME:REVISION`` that one."""
    return redact_image(registry.images.get(reference), caller)


@router.get(
    "/{reference}/copies", response_model=ImageCopies, responses=problem_responses(403, 404)
)
def show_copies(reference: ImageReference, caller: Operator, registry: RegistryDep) -> ImageCopies:
    """Show the copies of an image on hosts, with their progress."""
    return ImageCopies(items=list(registry.images.copies(reference)))


@router.post("", status_code=202, response_model=Image, responses=problem_responses(403, 409))
def fetch_image(
    body: ImageInput, caller: Operator, services: ServicesDep, creation: IdempotencyDep
) -> Response:
    """Have a worker download an image: `importing`, then `ready`, or `failed` with an error."""
    new = NewImage(
        name=body.name,
        format=body.format,
        seed_kind=body.seed_kind,
        min_memory_mib=body.min_memory_mib,
    )

    def create(registry: Registry) -> Image:
        url = check_image_url(body.url, services.image_urls)
        return registry.images.fetch(
            new, url=url, sha256=body.sha256, signature=body.signature, actor=caller.actor
        )

    return creation.answer(body, create, status=202, adapter=_ADAPTER)


@router.post(
    "/upload",
    status_code=201,
    response_model=Image,
    responses=problem_responses(403, 413, 507),
    openapi_extra=_CONTENT,
)
async def upload_image(
    request: HttpRequest,
    query: Annotated[ImageUpload, Query()],
    caller: Operator,
    services: ServicesDep,
    creation: IdempotencyDep,
) -> Response:
    """Upload an image: the next revision of its name.

    It is `ready`; if this API cannot check it (no qemu-img) it is `importing` until a
    worker did. Content that the newest revision has already makes no other. A call repeated
    with its `Idempotency-Key` sends the file again.
    """
    content_type = request.headers.get("content-type")
    if content_type != BYTES_TYPE:
        raise UnsupportedMediaTypeError(content_type, BYTES_TYPE)
    new = NewImage(
        name=query.name,
        format=query.format,
        seed_kind=query.seed_kind,
        min_memory_mib=query.min_memory_mib,
    )
    image_id = uuid7()
    store = services.image_store()

    def answer(stored: StoredFile) -> Response:
        def create(registry: Registry) -> Image:
            return registry.images.add(
                new,
                id=image_id,
                source=query.source,
                actor=caller.actor,
                **dataclasses.asdict(stored),
            )

        # The content's digest is part of the body, even if the caller did not name it.
        body = query.model_copy(update={"sha256": stored.sha256})
        return creation.answer(body, create, status=201, adapter=_ADAPTER)

    signature = None if query.signature is None else query.signature.encode()
    with store.receive(image_id, new.format, signature) as incoming:
        announced = request.headers.get("content-length", "")
        if announced.isdecimal():
            await run_in_threadpool(incoming.announce, int(announced[:20]))
        stored = await _receive_upload(request, incoming, query.sha256)
        answered = None
        try:
            answered = await run_in_threadpool(answer, stored)
        finally:
            if answered is None:
                store.discard(image_id, new.format)
        image = _ADAPTER.validate_json(bytes(answered.body))
        if image.id != image_id:  # an image with the same content exists; a lost file is restored
            if await run_in_threadpool(services.registry.images.is_removed, image.id):
                store.discard(image_id, new.format)
            else:
                store.rename_file(image_id, image.id, new.format)
    return answered


@router.post(
    "/{reference}/release", response_model=Image, responses=problem_responses(403, 404, 409)
)
def release_image(reference: ImageReference, caller: Operator, registry: RegistryDep) -> Image:
    """Release a held image, so that hosts receive it again.

    One is held when several hosts stopped answering while they were brought it, or had just
    got it: until it is released no host gets it, and VMs of it wait with the reason `image_held`.
    """
    return registry.images.release(reference, actor=caller.actor)


@router.delete("/{reference}", response_model=Image, responses=problem_responses(403, 404, 409))
def remove_image(reference: ImageReference, caller: Operator, services: ServicesDep) -> Image:
    """Remove an image. Refused while VMs use it or requests wait for it."""
    removed = services.registry.images.remove(reference, actor=caller.actor)
    services.image_store().discard(removed.id, removed.format)
    return removed


async def _receive_upload(
    request: HttpRequest, incoming: IncomingFile, sha256: str | None
) -> StoredFile:
    """Write the body of a call to a file, and store it if it has the SHA-256."""
    try:
        async for piece in _body_pieces(request):
            await run_in_threadpool(incoming.write, piece)
    except ClientDisconnect:
        raise MalformedBodyError("it ended early") from None
    return await run_in_threadpool(incoming.store, sha256)


async def _body_pieces(request: HttpRequest) -> AsyncIterator[bytes]:
    """Yield the body of an upload in pieces that are large enough to write."""
    gathered = bytearray()
    async for piece in request.stream():
        gathered += piece
        if len(gathered) >= _WRITE_BYTES:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered)
