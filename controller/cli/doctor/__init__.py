"""`fuga doctor`: checks of settings, hosts, certificates, logins and the register center."""
