# Builds every unit of hls/ with Vitis HLS, one after the other; build.tcl lists the environment variables.

set here [file dirname [file normalize [info script]]]
set back [pwd]
foreach name {bisort_merger bisort_indexer bisort_boundary bisort_partitioner bisort_prober bisort_engine} {
    set ::env(UNIT) $name
    source $here/build.tcl
    cd $back
}
