"""A provider of OpenID Connect, as a program: Django OAuth Toolkit with two users.

Usage: provider_app.py FOLDER, which gets the database; the port is told on standard output.
"""

from __future__ import annotations

import sys
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, ClassVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import django
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from django.conf import settings
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application

PASSWORD = "correct horse battery staple"
#: User, and its groups.
USERS = {"anna": ["physics"], "otto": ["cloud-admins", "staff"], "eve": ["guests"]}
FORM = """<!doctype html><title>Provider</title><link rel="icon" href="data:,"><h1>Provider</h1>
<form method="post">{% csrf_token %}
{{ form }}<button type="submit">Sign in</button></form>"""


def configure(folder: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    settings.configure(
        SECRET_KEY="of a test",
        ALLOWED_HOSTS=["127.0.0.1"],
        ROOT_URLCONF=__name__,
        LOGIN_URL="/login/",
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.sessions",
            "oauth2_provider",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
        ],
        DATABASES={
            "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": folder / "provider.db"}
        },
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "OPTIONS": {
                    "loaders": [("django.template.loaders.locmem.Loader", {"login.html": FORM})]
                },
            }
        ],
        OAUTH2_PROVIDER={
            "OIDC_ENABLED": True,
            "OIDC_RSA_PRIVATE_KEY": pem,
            "PKCE_REQUIRED": True,
            "SCOPES": {"openid": "who you are", "profile": "your name"},
            "OAUTH2_VALIDATOR_CLASS": f"{__name__}.Claims",
        },
    )


def fill() -> None:
    from django.contrib.auth.models import Group, User
    from oauth2_provider.models import Application

    call_command("migrate", verbosity=0)
    for name, groups in USERS.items():
        user = User.objects.create_user(name, password=PASSWORD)
        user.groups.set([Group.objects.get_or_create(name=each)[0] for each in groups])
    for client_id, client_type in (("fuga", "public"), ("fuga-api", "confidential")):
        Application.objects.create(
            client_id=client_id,
            client_secret="the API's own: 100 %" if client_type == "confidential" else "",
            client_type=client_type,
            authorization_grant_type="authorization-code",
            redirect_uris="http://127.0.0.1/web/ http://127.0.0.1/fuga",
            algorithm="RS256",
            skip_authorization=True,
        )


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def main() -> None:
    configure(Path(sys.argv[1]))
    django.setup()
    fill()
    from django.contrib.auth.views import LoginView
    from django.urls import include, path
    from oauth2_provider.oauth2_validators import OAuth2Validator

    class Claims(OAuth2Validator):  # type: ignore[misc, unused-ignore]
        oidc_claim_scope: ClassVar[None] = None

        def get_additional_claims(self, request: Any) -> dict[str, Any]:
            return {
                "preferred_username": request.user.get_username(),
                "groups": sorted(each.name for each in request.user.groups.all()),
            }

    globals().update(
        Claims=Claims,
        urlpatterns=[
            path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
            path("login/", LoginView.as_view(template_name="login.html")),
        ],
    )
    with make_server("127.0.0.1", 0, get_wsgi_application(), Server, Quiet) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
