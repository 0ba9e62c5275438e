# recsim-mnar without root: docker build -t recsim-mnar . && docker run --rm -v "$PWD:/work" recsim-mnar compare --preset quick
FROM python:3.13-slim

COPY . /source
RUN pip install --no-cache-dir /source && rm -r /source \
    && useradd --create-home --uid 1000 recsim \
    && install -d -o recsim /work

USER recsim
WORKDIR /work
# Kernels are compiled for the machine that runs them, on first use; keep them with -v NAME:/home/recsim/.cache
ENTRYPOINT ["recsim-mnar"]
CMD ["--help"]
