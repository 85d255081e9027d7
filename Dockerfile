# UNTRIED: no container engine was available where this was written. Corrections are welcome.
FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked --package ringwell-cli --features nats

FROM debian:bookworm-slim
RUN useradd --system --create-home --home-dir /var/lib/ringwell ringwell
COPY --from=build /src/target/dist/ringwell /usr/local/bin/ringwell
USER ringwell
# The journal: use a volume on a disk whose flush is reliable.
VOLUME /var/lib/ringwell
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["ringwell"]
# The demo; for real pools mount a configuration and pass `serve --config PATH`.
CMD ["demo", "--data", "/var/lib/ringwell", "--listen", "0.0.0.0:8080"]
