# frozen_string_literal: true

# Checks that the documentation and the signatures agree: each `@param` names a parameter of its
# method, and a method with a signature and named parameters has the same names in sig/. Part of
# `rake signatures`.
require "rbs"
begin
  require "yard"
rescue LoadError
  puts "documentation: YARD is not installed"
  exit
end

SIG = File.expand_path("../sig", __dir__)
LIB = File.expand_path("../lib", __dir__)

YARD::Logger.instance.level = :warn
YARD::Logger.instance.io = warnings = StringIO.new
YARD::Registry.clear
YARD.parse(Dir["#{LIB}/**/*.rb"])

loader = RBS::EnvironmentLoader.new(core_root: nil)
loader.add(path: Pathname(SIG))
declared = RBS::Environment.from_loader(loader).class_decls.flat_map { |name, entry|
  entry.decls.flat_map { |decl| decl.decl.members }.grep(RBS::AST::Members::MethodDefinition).map do |member|
    path = "#{name.to_s.delete_prefix("::")}#{member.kind == :singleton ? "." : "#"}#{member.name}"
    types = member.types.map(&:type)
    [path, types.flat_map { |type| [*type.required_keywords.keys, *type.optional_keywords.keys] }.uniq]
  end
}.to_h

wrong = declared.filter_map do |path, keywords|
  documented = YARD::Registry.at(path) or next
  names = documented.parameters.map(&:first).grep(/:\z/).map { |name| name.chomp(":").to_sym }
  next if documented.parameters.any? { |name, _| name.start_with?("**", "...") }

  "#{path}: code has #{names}, sig/ has #{keywords}" if names.sort != keywords.sort
end
wrong.concat(warnings.string.lines.grep(/@param|@return|unknown/i))
abort wrong.join("\n") if wrong.any?
puts "documentation and signatures: #{declared.size} methods agree"
