# Builds one unit of hls/ with Vitis HLS: C synthesis, and export of the kernel or IP.
#
#     UNIT=bisort_merger W=4 vitis-run --mode hls --tcl hls/scripts/build.tcl       (before 2023.2: vitis_hls -f hls/scripts/build.tcl)
#
# Environment variables: UNIT (bisort_engine), KEY_W (64), W (4), INDEX_LOG2 (16), PART (xcu250-figd2104-2L-e), PERIOD_NS (4.0), and
# OUT (build/hls), the folder for projects. Not run in this repository: it needs the vendor's tools.

proc setting {name value} {
    return [expr {[info exists ::env($name)] ? $::env($name) : $value}]
}

set unit [setting UNIT bisort_engine]
set sources [file dirname [file dirname [file normalize [info script]]]]
set units {bisort_merger bisort_indexer bisort_boundary bisort_partitioner bisort_prober}
if {$unit ni [concat $units bisort_engine]} {
    error "UNIT=$unit: allowed are [join [concat $units bisort_engine] {, }]"
}

set defines {}
foreach {name value} {KEY_W 64 W 4 INDEX_LOG2 16} {
    lappend defines "-DBISORT_$name=[setting $name $value]"
}
set flags "-std=c++17 -I$sources [join $defines { }]"

set out [setting OUT build/hls]
file mkdir $out
cd $out
open_project -reset ${unit}_w[setting W 4]
set_top $unit
# The engine includes all units; a unit needs only itself.
foreach part [expr {$unit eq "bisort_engine" ? [concat $units bisort_engine] : [list $unit]}] {
    add_files $sources/$part.cpp -cflags $flags
}
open_solution -reset solution -flow_target [expr {$unit eq "bisort_engine" ? "vitis" : "vivado"}]
set_part [setting PART xcu250-figd2104-2L-e]
create_clock -period [setting PERIOD_NS 4.0] -name default
csynth_design
export_design -format [expr {$unit eq "bisort_engine" ? "xo" : "ip_catalog"}]
close_project
