"""fuga's REST API for Python programs; the command line is one of them.

``controller.client.http`` has the `Client`, ``connection`` where it finds the API and with which
token, ``errors`` what its calls may end with, ``models`` the types of what it sends and reads::

    client = Client(Connection(url="http://127.0.0.1:8732", token="…"))
    for vm in client.vms.list(tenant="a"):
        print(vm["name"], vm["host"])

Nothing is imported here: a command that makes no call need not wait for what calls need.
"""
