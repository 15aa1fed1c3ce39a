"""Pictures of a run as SVG: the same ones for the page, for files and for notebooks.

Own SVG rather than a plotting library, after measuring what one file would carry: the scripts
of Altair are 877 KiB (`vl_convert.javascript_bundle()`, 1.9.0) and an 84 MB package, those of
Plotly 4.8 MB. A picture here is 5 to 50 KiB, is read without any script, prints, takes its
colours from the page (light or dark), and is the same bytes each time.
"""
