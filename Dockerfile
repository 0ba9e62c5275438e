# recsim-mnar without root: docker build -t recsim-mnar . && docker run --rm -v "$PWD:/work" recsim-mnar compare --preset quick
# To have the same base every time name it by its digest, which `docker buildx imagetools inspect python:3.13-slim` prints:
#   docker build --build-arg BASE=python:3.13-slim@sha256:... -t recsim-mnar .
ARG BASE=python:3.13-slim
FROM ${BASE}

COPY . /source
RUN pip install --no-cache-dir --constraint /source/constraints.txt setuptools \
    && pip install --no-cache-dir --constraint /source/constraints.txt --no-build-isolation /source && rm -r /source \
    && useradd --create-home --uid 1000 recsim \
    && install -d -o recsim /work

USER recsim
WORKDIR /work
# Kernels are compiled for the machine that runs them, on first use; keep them with -v NAME:/home/recsim/.cache
ENTRYPOINT ["recsim-mnar"]
CMD ["--help"]
