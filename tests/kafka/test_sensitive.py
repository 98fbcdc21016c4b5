from __future__ import annotations

import pytest

from kdissect.kafka.secrets import is_sensitive_config


@pytest.mark.parametrize(
    "name",
    [
        "sasl.jaas.config",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.truststore.password",
        "listener.name.internal.ssl.keystore.password",
        "ssl.keystore.key",
        "listener.name.external.ssl.keystore.key",
        "delegation.token.master.key",
        "delegation.token.secret.key",
        "password.encoder.secret",
        "password.encoder.old.secret",
        "basic.auth.user.info",
        "schema.registry.basic.auth.user.info",
        "value.converter.basic.auth.user.info",
        "confluent.license.key",
        "bearer.auth.token",
        "connection.password",
        "connection.url",
        "database.password",
        "DB_PASSWORD",
        "dbUserPassword",
        "aws.access.key.id",
        "aws.secret.access.key",
        "azure.account-key",
        "apiKey",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.assertion.file",
        "http.headers",
        "db.pwd",
        "userPwd",
        "ftp.passwd",
        "ssl.key.passphrase",
        "gcp.credential",
        "aws.credentials.provider.class",
        "api.key",
        "api_key",
        "service.apikey",
        "s3.access.key",
        "access_key",
    ],
)
def test_sensitive(name: str) -> None:
    assert is_sensitive_config(name)


@pytest.mark.parametrize(
    "name",
    [
        "cleanup.policy",
        "retention.ms",
        "advertised.listeners",
        "sasl.mechanism.inter.broker.protocol",
        "sasl.enabled.mechanisms",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.certificates",
        "key.serializer",
        "key.converter",
        "key.converter.schemas.enable",
        "producer.key.serializer",
        "delegation.token.max.lifetime.ms",
        "delegation.token.expiry.time.ms",
        "sasl.oauthbearer.token.endpoint.url",
        "password.encoder.iterations",
        "password.encoder.key.length",
        "inter.worker.key.ttl.ms",
        "monkey.business",
    ],
)
def test_harmless(name: str) -> None:
    assert not is_sensitive_config(name)
