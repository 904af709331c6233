"""MMCV's names at its root, except those of ``utils`` and ``fileio``, and the package of each."""

from __future__ import annotations

_BY_PACKAGE = {
    'arraymisc': 'dequantize quantize',
    'image': """adjust_brightness adjust_color adjust_contrast adjust_hue adjust_lighting adjust_sharpness auto_contrast
        bgr2gray bgr2hls bgr2hsv bgr2rgb bgr2ycbcr clahe cutout gray2bgr gray2rgb hls2bgr hsv2bgr imconvert imcrop
        imdenormalize imequalize imflip imflip_ imfrombytes iminvert imnormalize imnormalize_ impad impad_to_multiple
        imread imrescale imresize imresize_like imresize_to_multiple imrotate imshear imtranslate imwrite lut_transform
        posterize rescale_size rgb2bgr rgb2gray rgb2ycbcr solarize supported_backends tensor2imgs use_backend ycbcr2bgr
        ycbcr2rgb""",
    'video': """Cache VideoReader concat_video convert_video cut_video dequantize_flow flow_from_bytes flow_warp
        flowread flowwrite frames2video quantize_flow resize_video sparse_flow_from_bytes""",
    'visualization': 'Color color_val flow2rgb flowshow imshow imshow_bboxes imshow_det_bboxes make_color_wheel',
}

#: By name: the package of the installed mmcv that has it.
INSTALLED = {name: package for package, names in _BY_PACKAGE.items() for name in names.split()}

#: Packages that are attributes of the root without being imported by themselves.
PACKAGES = ('arraymisc', 'fileio', 'image', 'utils', 'version', 'video', 'visualization')
