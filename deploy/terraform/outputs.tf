output "private_ip" {
  description = "Address of the proxy, for peer.address of the branches or for DNS."
  value       = aws_network_interface.this.private_ip
}

output "security_group_id" {
  description = "Security group of the proxy: the file servers' group must let it in on port 445."
  value       = aws_security_group.this.id
}

output "instance_id" {
  description = "The instance, for Session Manager or the console."
  value       = aws_instance.this.id
}
