module railwright.io/controlplane/volcano/apis

go 1.25.0

require volcano.sh/apis v1.14.0
