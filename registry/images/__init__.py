"""Images, the backing files of disks: their files in the store, and their copies on hosts."""

from registry.images.files import check_image_files, remove_files_of_removed, remove_strays
from registry.images.incoming_file import IncomingFile, StoredFile
from registry.images.signatures import MAX_SIGNATURE_BYTES, SIGNATURE_SUFFIXES, read_image_keys
from registry.images.store import ImageStore
from registry.images.urls import check_image_url
from registry.records.images import BuildImage, Image, ImageCopy, NewImage

__all__ = [
    "MAX_SIGNATURE_BYTES",
    "SIGNATURE_SUFFIXES",
    "BuildImage",
    "Image",
    "ImageCopy",
    "ImageStore",
    "IncomingFile",
    "NewImage",
    "StoredFile",
    "check_image_files",
    "check_image_url",
    "read_image_keys",
    "remove_files_of_removed",
    "remove_strays",
]
